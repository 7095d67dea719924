"""The live page with very many groups: what it costs the proxy and the browser; and its picture."""
