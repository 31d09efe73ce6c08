"""What several units are made of: walks, scaling, delay lines, clock gates, signatures of ports."""
