"""Groups, connections and clients as plain rows, which one process can send to another, and the JSON pages made from them."""
