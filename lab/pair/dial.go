package pair

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Dial makes a connection to a server of that name at an address by stock TLS, as any third-party client would.
func Dial(address netip.AddrPort, name, certFile, keyFile, caFile string) (*grpc.ClientConn, error) {
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
	return grpc.NewClient(address.String(), grpc.WithNoProxy(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{leaf}, RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13,
	})))
}
