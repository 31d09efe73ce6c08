"""The sequencer: front end, queues, controls of the units, claims of banks, the state of a run."""
