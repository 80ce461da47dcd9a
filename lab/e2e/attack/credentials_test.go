package attack

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// tryList returns only the error.
func tryList(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := inventoryv1.NewInventoryServiceClient(conn).ListNodes(ctx, &inventoryv1.ListNodesRequest{})
	return err
}

// authorities are new CAs of both sides, and what they have signed.
type authorities struct{ inventory, writer *pki.CA }

// rotate gives both sides' files new certificates of new authorities, as a person would who
// renews them all at once.
func rotate(s *e2e.Setup, expires time.Time) authorities {
	s.T.Helper()
	inventory, err := pki.NewCA("inventory's side, renewed")
	s.Must(err)
	writer, err := pki.NewCA("writer's side, renewed")
	s.Must(err)
	s.Issue(inventory, s.Inventory.Dir(), pki.Cert{
		CommonName: "inventory", URIs: []string{pair.InventorySAN}, DNS: []string{"inventory.lab.example"},
		IPs: []netip.Addr{pair.InventoryAddress}, Usage: pki.Server, NotAfter: expires,
	})
	authority(s, writer, s.Inventory.Dir())
	for _, component := range s.Replicas() {
		s.Issue(writer, component.Dir(),
			pki.Cert{CommonName: "writer", URIs: []string{pair.WriterSAN}, Usage: pki.Client, NotAfter: expires})
		authority(s, inventory, component.Dir())
	}
	s.Issue(writer, filepath.Dir(s.Operator.CertFile),
		pki.Cert{CommonName: "operator", URIs: []string{pair.OperatorSAN}, Usage: pki.Client})
	authority(s, inventory, filepath.Dir(s.Operator.CertFile))
	return authorities{inventory, writer}
}

func authority(s *e2e.Setup, ca *pki.CA, dir string) {
	s.T.Helper()
	_, err := ca.Write(dir, "peer-ca")
	s.Must(err)
}

func TestCredentialsChangeWhileBothComponentsRun(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	for _, dir := range []string{s.Inventory.Dir(), s.Writers[0].Dir(), filepath.Dir(s.Operator.CertFile)} {
		s.RestoreFiles(dir+"/tls.crt", dir+"/tls.key", dir+"/peer-ca.crt")
	}
	clients := s.Inventory.Dir() + "/clients.yaml"
	s.RestoreFiles(clients)
	s.StartAll()
	worker := s.Join(1)[0]
	inventory, writer := s.Inventory, s.Writers[0]

	var cas authorities
	s.Step("certificates and authorities of both sides are replaced, and the running inventory takes them up", func(s *e2e.Setup) {
		expires := time.Now().AddDate(0, 2, 0).Truncate(time.Second)
		s.ExpectNoWrites(func() {
			cas = rotate(s, expires)
			for component, metric := range map[*pair.Component]string{
				inventory: `slicefeed_inventory_certificate_expiry_timestamp_seconds{link="feed"}`,
				writer:    `slicefeed_writer_certificate_expiry_timestamp_seconds{link="default"}`,
			} {
				s.AwaitMetric(component, metric, e2e.Equals(float64(expires.Unix())))
				s.Until("the authority is re-read", func() bool { return strings.Contains(s.LogOf(component), `"file":"ca"`) })
			}
			s.ListNodes(s.OperatorConn()) // both ends of it are of the new authorities
		})
	})
	s.Step("the running writer connects by them", func(s *e2e.Setup) {
		pid := writer.PID()
		s.ExpectNoWrites(func() {
			s.Restart(inventory)
			s.AwaitMetric(writer, e2e.SourceSynced, e2e.Equals(1))
		})
		if writer.PID() != pid {
			s.T.Error("the writer was restarted")
		}
	})
	s.Step(
		"an authority that is replaced by rubbish stays in use and is counted, and a client that is taken off the list loses its stream",
		func(s *e2e.Setup) {
			all, err := os.ReadFile(clients)
			s.Must(err)
			s.WriteFile(inventory.Dir()+"/peer-ca.crt", "-----BEGIN CERTIFICATE-----\nrubbish\n")
			s.WriteFile(clients, strings.Replace(string(all), pair.WriterSAN, "spiffe://lab.example/somebody-else", 1))
			begun := time.Now()
			s.ExpectNoWrites(func() {
				s.AwaitMetric(writer, e2e.SourceConnected, e2e.Equals(0))
				s.T.Logf("its stream ended after %s", time.Since(begun))
				s.AwaitMetric(inventory, `slicefeed_inventory_tls_reload_errors_total{file="ca",link="feed"}`, e2e.AtLeast(1))
				s.ListNodes(s.OperatorConn())
				if err := tryList(s.Ctx(), s.WriterConn()); status.Code(err) != codes.PermissionDenied &&
					status.Code(err) != codes.Unavailable {
					s.T.Errorf("a client that was taken off the list gets %v", err)
				}
			})
			s.Expect(pair.Ready, worker)
		},
	)
	s.Step("strangers are refused", func(s *e2e.Setup) {
		other, err := pki.NewCA("unknown")
		s.Must(err)
		for _, one := range []struct {
			who  string
			ca   *pki.CA
			cert pki.Cert
			want codes.Code
		}{
			{"a name that is not listed", cas.writer, pki.Cert{URIs: []string{"spiffe://lab.example/stranger"}, Usage: pki.Client}, codes.Unavailable},
			{"a listed name by another authority", other, pki.Cert{URIs: []string{pair.OperatorSAN}, Usage: pki.Client}, codes.Unavailable},
			{"a listed name by the inventory's own authority", cas.inventory, pki.Cert{URIs: []string{pair.OperatorSAN}, Usage: pki.Client}, codes.Unavailable},
			{"a listed name, but a server's certificate", cas.writer, pki.Cert{URIs: []string{pair.OperatorSAN}, Usage: pki.Server}, codes.Unavailable},
		} {
			s.Step(one.who, func(s *e2e.Setup) {
				dir := s.T.TempDir()
				s.Issue(one.ca, dir, one.cert)
				conn := s.Dial(dir+"/tls.crt", dir+"/tls.key", s.Operator.CAFile)
				if err := tryList(s.Ctx(), conn); status.Code(err) != one.want {
					s.T.Errorf("ListNodes: %v, want %s", err, one.want)
				}
				if err := reflects(s.Ctx(), grpc_reflection_v1.NewServerReflectionClient(conn)); status.Code(err) != one.want {
					s.T.Errorf("reflection: %v, want %s", err, one.want)
				}
			})
		}
		s.Must(reflects(s.Ctx(), grpc_reflection_v1.NewServerReflectionClient(s.OperatorConn())))
	})
}

// reflects asks for the list of services.
func reflects(ctx context.Context, client grpc_reflection_v1.ServerReflectionClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}) // what went wrong is said by Recv
	_, err = stream.Recv()
	return err
}
