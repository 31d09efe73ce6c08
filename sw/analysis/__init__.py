"""What can be said of a network or a run: explanations, costs, differences, histories."""
