package e2e

import (
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	"github.com/slicefeed/slicefeed/lab/apifault"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// Dial makes a connection to the inventory.
func (s *Setup) Dial(certFile, keyFile, caFile string) *grpc.ClientConn {
	s.T.Helper()
	at := netip.AddrPortFrom(pair.InventoryAddress, pair.LinkPort)
	conn, err := pair.Dial(at, "inventory.lab.example", certFile, keyFile, caFile)
	s.Must(err)
	s.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// OperatorConn connects with the operator's certificate.
func (s *Setup) OperatorConn() *grpc.ClientConn {
	s.T.Helper()
	return s.Dial(s.Operator.CertFile, s.Operator.KeyFile, s.Operator.CAFile)
}

// WriterConn connects with the writer's own certificate.
func (s *Setup) WriterConn() *grpc.ClientConn {
	s.T.Helper()
	dir := s.Writers[0].Dir()
	return s.Dial(dir+"/tls.crt", dir+"/tls.key", dir+"/peer-ca.crt")
}

// ListNodes calls ListNodes.
func (s *Setup) ListNodes(conn *grpc.ClientConn) *inventoryv1.ListNodesResponse {
	s.T.Helper()
	list, err := inventoryv1.NewInventoryServiceClient(conn).ListNodes(s.Ctx(), &inventoryv1.ListNodesRequest{}, grpc.WaitForReady(true))
	s.Must(err)
	return list
}

// InventoryReport returns the inventory's report, as an operator gets it.
func (s *Setup) InventoryReport(filter string) *inventoryv1.InventoryReport {
	s.T.Helper()
	report, err := inventoryv1.NewInventoryReportServiceClient(s.OperatorConn()).
		GetReport(s.Ctx(), &reportv1.GetReportRequest{Filter: filter}, grpc.WaitForReady(true))
	s.Must(err)
	return report
}

// WriteFile replaces a file in one step.
func (s *Setup) WriteFile(file, text string) {
	s.T.Helper()
	s.Must(pki.WriteFile(file, []byte(text)))
}

// ContainsAll reports whether a text contains all parts.
func ContainsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// ClientWith returns a client with a credential from a file.
func (s *Setup) ClientWith(kubeconfig string) *kubernetes.Clientset {
	s.T.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	s.Must(err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	s.Must(err)
	return client
}

// WriterKubeconfig is the file that the writer is started with.
func (s *Setup) WriterKubeconfig() string {
	s.T.Helper()
	for _, line := range s.Writers[0].Env() {
		if file, ok := strings.CutPrefix(line, "TARGET_KUBECONFIG="); ok {
			return file
		}
	}
	s.T.Fatal("the writer has no kubeconfig")
	return ""
}

// Behind has a component reach its API server through a proxy until the test ends.
func (s *Setup) Behind(component *pair.Component) *apifault.Proxy {
	s.T.Helper()
	proxy, kubeconfig, err := s.Front(component)
	s.Must(err)
	s.T.Cleanup(func() { s.Must(proxy.Close()) })
	setting := "TARGET_KUBECONFIG"
	if component == s.Inventory {
		setting = "SECURED_KUBECONFIG"
	}
	s.With(component, map[string]string{setting: kubeconfig})
	return proxy
}

// Issue writes a certificate of a CA, and its key, into a directory.
func (s *Setup) Issue(ca *pki.CA, dir string, cert pki.Cert) {
	s.T.Helper()
	issued, err := ca.Issue(cert)
	s.Must(err)
	_, _, err = issued.Write(dir, "tls")
	s.Must(err)
}
