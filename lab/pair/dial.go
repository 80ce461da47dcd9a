package pair

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Dial makes a connection to the inventory at an address by stock TLS, as any third-party client would.
func Dial(address netip.Addr, certFile, keyFile, caFile string) (*grpc.ClientConn, error) {
	leaf, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return grpc.NewClient(port(address, LinkPort), grpc.WithNoProxy(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{leaf}, RootCAs: roots, ServerName: "inventory.lab.example", MinVersion: tls.VersionTLS13,
	})))
}
