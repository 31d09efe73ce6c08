"""From a plan to words: tasks of each kind of layer, waits, weight streams."""
