import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Hive's metastore over a Derby database in memory, on the loopback interface only: Hive's main class listens on every
 * interface without a password, and needs another program to create its tables.
 *
 * <p>Arguments: port, folder of the warehouse.
 */
public class HiveMetastore {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = MetastoreConf.newMetastoreConf();
    conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:metastore;create=true");
    conf.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
    conf.set("datanucleus.schema.autoCreateAll", "true");
    conf.set("metastore.schema.verification", "false");
    conf.set("metastore.warehouse.dir", arguments[1]);
    // the defaults are classes of Hive's server
    conf.set("metastore.task.threads.always", "org.apache.hadoop.hive.metastore.events.EventCleanerTask");
    conf.set("metastore.expression.proxy", "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy");
    // locks, which Iceberg takes for every commit
    TxnDbUtil.setConfValues(conf);
    TxnDbUtil.prepDb(conf);
    HiveMetaStore.HMSHandler one = new HiveMetaStore.HMSHandler("metastore", conf, false);
    IHMSHandler handler = RetryingHMSHandler.getProxy(conf, one, false);
    TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    new TThreadPoolServer(new TThreadPoolServer.Args(socket).processor(new TSetIpAddressProcessor<>(handler))).serve();
  }
}
