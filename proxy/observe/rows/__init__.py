"""Groups, connections and clients as plain rows, which processes exchange, and the JSON pages made from them."""
