import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * A REST catalog on a free port of loopback: Iceberg's own adapter, over a catalog in SQLite whose tables are files of a folder.
 *
 * <p>The argument is the folder. The port is the only line of stdout. It ends when its standard input does.
 */
public final class RestCatalog {
  public static void main(String[] arguments) throws Exception {
    JdbcCatalog tables = new JdbcCatalog();
    tables.setConf(new Configuration());
    tables.initialize(
        "rest",
        Map.of(
            "uri", "jdbc:sqlite:" + arguments[0] + "/rest.db",
            "warehouse", "file://" + arguments[0] + "/warehouse",
            "jdbc.schema-version", "V1"));
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(tables))), "/*");
    server.setHandler(context);
    server.start();
    System.out.println(connector.getLocalPort());
    while (System.in.read() >= 0) {}
    server.stop();
    tables.close();
  }
}
