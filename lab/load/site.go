package load

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/process"
)

// Site is what the servers of one run share: their certificate, and the list of who may call.
type Site struct {
	dir                          string
	servers, callers             *pki.CA
	cert, key, callersCA, listed string
	limits                       []string // environment of the programs, for their memory
}

// SubscriberName is that of a crowd's subscriber by its number.
func SubscriberName(i int) string { return fmt.Sprintf("client-%03d.example", i%clients) }

// NewSite makes the files in a directory.
func NewSite(dir string) (*Site, error) {
	s := &Site{dir: dir, listed: filepath.Join(dir, "clients.yaml")}
	var err error
	if s.servers, err = pki.NewCA("inventory's side"); err != nil {
		return nil, err
	}
	if s.callers, err = pki.NewCA("clients' side"); err != nil {
		return nil, err
	}
	leaf, err := s.servers.Issue(pki.Cert{CommonName: "inventory", DNS: []string{"inventory.example"}, Usage: pki.Server})
	if err != nil {
		return nil, err
	}
	if s.cert, s.key, err = leaf.Write(dir, "tls"); err != nil {
		return nil, err
	}
	if s.callersCA, err = s.callers.Write(dir, "peer-ca"); err != nil {
		return nil, err
	}
	var list strings.Builder
	list.WriteString("clients:\n")
	for i := range clients {
		fmt.Fprintf(&list, "- {san: %s, role: subscriber}\n", SubscriberName(i))
	}
	for _, name := range []string{visitor, sleeper, attacker} {
		fmt.Fprintf(&list, "- {san: %s, role: operator}\n", name)
	}
	return s, os.WriteFile(s.listed, []byte(list.String()), 0o600)
}

// as is the TLS of a client of that name.
func (s *Site) as(name string) (*tls.Config, error) {
	leaf, err := s.callers.Issue(pki.Cert{CommonName: name, DNS: []string{name}, Usage: pki.Client})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(leaf.CertPEM, leaf.KeyPEM)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		RootCAs: s.servers.Pool(), ServerName: "inventory.example", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
	}, nil
}

// Ports are where a server listens.
type Ports struct{ Service, Admin, Debug int }

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// Inventory starts the inventory's program over a fleet, in a namespace of our own, and waits until it is ready.
func (s *Site) Inventory(from *Fleet) (*Server, error) {
	root, err := pair.Root()
	if err != nil {
		return nil, err
	}
	return s.InventoryAt(Ports{9443, 8080, 6060}, from, filepath.Join(root, ".bin", "slicefeed-inventory"))
}

// InventoryAt is Inventory with a program, an environment and ports of the caller's.
func (s *Site) InventoryAt(at Ports, from *Fleet, program string, env ...string) (*Server, error) {
	return start(s, at, process.Spec{
		Name: "inventory", Path: program, Args: []string{"serve"},
		Log: filepath.Join(s.dir, "inventory.log"), Env: append(slices.Concat(from.env(), s.limits, env),
			"SECURED_SUBNET_CIDR=10.0.0.0/8",
			"LISTEN_ADDRESS="+loopback(at.Service), "ADMIN_ADDRESS="+loopback(at.Admin), "DEBUG_ADDRESS="+loopback(at.Debug),
			"TLS_CERT_FILE="+s.cert, "TLS_KEY_FILE="+s.key, "TLS_PEER_CA_FILE="+s.callersCA, "ALLOWED_CLIENTS_FILE="+s.listed,
		),
	})
}

// Bare starts a gRPC server that does nothing but send (lab/load/bare), with the same TLS and
// options as the inventory's, from our own program.
func (s *Site) Bare() (*Server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	at := Ports{9444, 8081, 8081}
	return start(s, at, process.Spec{
		Name: "bare server", Path: self,
		Args: []string{
			"bare-server", "--address", loopback(at.Service), "--admin", loopback(at.Admin),
			"--cert", s.cert, "--key", s.key, "--ca", s.callersCA,
		},
		Log: filepath.Join(s.dir, "bare.log"),
	})
}
