"""What a network is: graph, nodes, layouts, and the exact result of each node."""
