/** Start Trino by reflection: its main class is not published, and its classes need a newer Java. */
public class TrinoServer {
  public static void main(String[] arguments) throws Exception {
    Class<?> server = Class.forName("io.trino.server.Server");
    server.getMethod("start", String.class).invoke(server.getConstructor().newInstance(), arguments[0]);
  }
}
