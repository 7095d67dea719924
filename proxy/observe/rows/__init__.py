"""Groups, connections and clients as plain rows, which one process can tell another, and the JSON pages made of them."""
