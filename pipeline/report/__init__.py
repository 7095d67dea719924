"""Reports: one HTML file each, with inline SVG and no reference to anything outside it. Plain data in, text out; no file is read."""
