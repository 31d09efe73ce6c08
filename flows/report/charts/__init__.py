"""Charts as data: what pictures draw with matplotlib and the page as SVG."""
