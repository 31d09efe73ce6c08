"""The files of a sweep: pictures and the page."""
