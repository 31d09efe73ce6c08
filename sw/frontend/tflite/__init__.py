"""TFLite files become graphs."""
