package e2e

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// authorities are new CAs of both sides, and what they have signed.
type authorities struct{ inventory, writer *pki.CA }

// rotate gives both sides' files new certificates of new authorities, as a person would who
// renews them all at once; nobody is told.
func (s *stage) rotate(expires time.Time) authorities {
	s.t.Helper()
	inventory, err := pki.NewCA("inventory's side, renewed")
	s.must(err)
	writer, err := pki.NewCA("writer's side, renewed")
	s.must(err)
	s.issue(inventory, s.Inventory.Dir(), pki.Cert{
		CommonName: "inventory", URIs: []string{pair.InventorySAN}, DNS: []string{"inventory.lab.example"},
		IPs: []netip.Addr{pair.InventoryAddress}, Usage: pki.Server, NotAfter: expires,
	})
	s.authority(writer, s.Inventory.Dir())
	for _, half := range s.writers {
		s.issue(writer, half.Dir(), pki.Cert{CommonName: "writer", URIs: []string{pair.WriterSAN}, Usage: pki.Client, NotAfter: expires})
		s.authority(inventory, half.Dir())
	}
	s.issue(
		writer,
		filepath.Dir(s.Operator.CertFile),
		pki.Cert{CommonName: "operator", URIs: []string{pair.OperatorSAN}, Usage: pki.Client},
	)
	s.authority(inventory, filepath.Dir(s.Operator.CertFile))
	return authorities{inventory, writer}
}

func (s *stage) issue(ca *pki.CA, dir string, cert pki.Cert) {
	s.t.Helper()
	issued, err := ca.Issue(cert)
	s.must(err)
	_, _, err = issued.Write(dir, "tls")
	s.must(err)
}

func (s *stage) authority(ca *pki.CA, dir string) {
	s.t.Helper()
	_, err := ca.Write(dir, "peer-ca")
	s.must(err)
}

func TestCredentialsChangeWhileBothComponentsRun(t *testing.T) {
	s := enter(t, script{})
	for _, dir := range []string{s.Inventory.Dir(), s.writers[0].Dir(), filepath.Dir(s.Operator.CertFile)} {
		s.keep(dir+"/tls.crt", dir+"/tls.key", dir+"/peer-ca.crt")
	}
	clients := s.Inventory.Dir() + "/clients.yaml"
	s.keep(clients)
	s.start()
	worker := s.join(1)[0]
	inventory, writer := s.Inventory, s.writers[0]

	var cas authorities
	s.step("certificates and authorities of both sides are replaced, and the running inventory takes them up", func(s *stage) {
		expires := time.Now().AddDate(0, 2, 0).Truncate(time.Second)
		s.quiet(func() {
			cas = s.rotate(expires)
			for half, metric := range map[*pair.Half]string{
				inventory: `slicefeed_inventory_certificate_expiry_timestamp_seconds{link="feed"}`,
				writer:    `slicefeed_writer_certificate_expiry_timestamp_seconds{link="default"}`,
			} {
				s.metric(half, metric, equals(float64(expires.Unix())))
				s.until("the authority is re-read", func() bool { return strings.Contains(s.log(half), "peer CAs") })
			}
			s.list(s.operator()) // both ends of it are of the new authorities
		})
	})
	s.step("the running writer connects by them", func(s *stage) {
		pid := writer.PID()
		s.quiet(func() {
			s.restart(inventory)
			s.metric(writer, sourceSynced, equals(1))
		})
		if writer.PID() != pid {
			s.t.Error("the writer was restarted")
		}
	})
	s.step(
		"an authority that is replaced by rubbish stays in use and is counted, and a client that is taken off the list loses its stream",
		func(s *stage) {
			all, err := os.ReadFile(clients)
			s.must(err)
			s.write(inventory.Dir()+"/peer-ca.crt", "-----BEGIN CERTIFICATE-----\nrubbish\n")
			s.write(clients, strings.Replace(string(all), pair.WriterSAN, "spiffe://lab.example/somebody-else", 1))
			begun := time.Now()
			s.quiet(func() {
				s.metric(writer, sourceConnected, equals(0))
				s.t.Logf("its stream ended after %s", time.Since(begun))
				s.metric(inventory, `slicefeed_inventory_tls_reload_errors_total{file="ca",link="feed"}`, atLeast(1))
				s.list(s.operator())
				if err := tryList(
					s.ctx(),
					s.subscriber(),
				); status.Code(err) != codes.PermissionDenied &&
					status.Code(err) != codes.Unavailable {
					s.t.Errorf("a client that was taken off the list is told %v", err)
				}
			})
			s.is(pair.Ready, worker)
		},
	)
	s.step("strangers are refused", func(s *stage) {
		other, err := pki.NewCA("nobody's")
		s.must(err)
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
			s.step(one.who, func(s *stage) {
				dir := s.t.TempDir()
				s.issue(one.ca, dir, one.cert)
				conn := s.dial(dir+"/tls.crt", dir+"/tls.key", s.Operator.CAFile)
				if err := tryList(s.ctx(), conn); status.Code(err) != one.want {
					s.t.Errorf("ListNodes: %v, want %s", err, one.want)
				}
				if err := reflects(s.ctx(), grpc_reflection_v1.NewServerReflectionClient(conn)); status.Code(err) != one.want {
					s.t.Errorf("reflection: %v, want %s", err, one.want)
				}
			})
		}
		s.must(reflects(s.ctx(), grpc_reflection_v1.NewServerReflectionClient(s.operator())))
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
