"""Reports: one HTML file each, with inline SVG and no external reference. Functions take plain data and return text."""
