package pair

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// The names in the certificates.
const (
	InventorySAN = "spiffe://lab.example/slicefeed/inventory"
	WriterSAN    = "spiffe://lab.example/slicefeed/writer"
	OperatorSAN  = "spiffe://lab.example/slicefeed/operator"
)

// clients is the inventory's ALLOWED_CLIENTS_FILE.
const clients = `clients:
- san: ` + WriterSAN + `
  role: subscriber
- san: ` + OperatorSAN + `
  role: operator
`

// Operator is the certificate of a person who asks the inventory, with grpcurl for one.
type Operator struct {
	CertFile, KeyFile string
	CAFile            string // of the inventory's certificate
}

// Authorities sign the certificates of the link. Whoever rotates one puts the new one here.
type Authorities struct{ Inventory, Writer *pki.CA }

// InventoryCert is the inventory's certificate as Start has it signed.
func (p *Pair) InventoryCert() pki.Cert { return inventoryCert(p.Inventory, InventorySAN) }

// WriterCert is that of the writers.
func (p *Pair) WriterCert() pki.Cert {
	return pki.Cert{CommonName: "writer", URIs: []string{WriterSAN}, Usage: pki.Client}
}

func inventoryCert(h *Component, san string) pki.Cert {
	return pki.Cert{
		CommonName: h.Name, URIs: []string{san}, DNS: []string{h.Name + ".lab.example"},
		IPs:   []netip.Addr{h.Address}, // grpcurl goes by the address here: there is no DNS
		Usage: pki.Server,
	}
}

// hire gives each component its credentials and settings, and no more than those: the RBAC
// manifests and the admission policy of deploy/, a certificate of its own side's CA, the
// other side's CA.
func (p *Pair) hire(ctx context.Context, options Options) error {
	var err error
	if p.CAs.Inventory, err = pki.NewCA("inventory's side"); err != nil {
		return err
	}
	if p.CAs.Writer, err = pki.NewCA("writer's side"); err != nil {
		return err
	}
	if err := p.applyPolicy(ctx); err != nil {
		return err
	}
	if err := p.hireInventory(ctx, options, p.CAs.Inventory, p.CAs.Writer); err != nil {
		return fmt.Errorf("prepare the inventory: %w", err)
	}
	for i := range options.Writers {
		if err := p.hireWriter(ctx, i, options, p.CAs.Writer, p.CAs.Inventory); err != nil {
			return fmt.Errorf("prepare a writer: %w", err)
		}
	}
	if err := p.awaitPolicy(ctx); err != nil {
		return err
	}
	return p.hireOperator(p.CAs.Writer, p.CAs.Inventory)
}

func (p *Pair) hireInventory(ctx context.Context, options Options, own, peer *pki.CA) error {
	if err := p.Secured.Apply(ctx, filepath.Join(p.root, "deploy", "manifests", "inventory-rbac.yaml")); err != nil {
		return err
	}
	var err error
	if p.kubeconfig, err = p.Secured.ServiceAccountKubeconfig(ctx, "slicefeed", "slicefeed-inventory"); err != nil {
		return err
	}
	p.Inventory, err = newComponent(p.dir, filepath.Join(options.Bin, "slicefeed-inventory"), InventoryAddress, "inventory")
	if err != nil {
		return err
	}
	link, err := serverSettings(p.Inventory, own, peer, InventorySAN)
	if err != nil {
		return err
	}
	token := filepath.Join(p.Inventory.dir, "ionos-token")
	if err := os.WriteFile(token, []byte(p.Cloud.Token+"\n"), 0o600); err != nil {
		return err
	}
	settings := map[string]string{
		"SECURED_KUBECONFIG":   p.kubeconfig,
		"SECURED_SUBNET_CIDR":  Subnet,
		"IONOS_TOKEN_FILE":     token,
		"IONOS_DATACENTER_ID":  Datacenter,
		"IONOS_PRIVATE_LAN_ID": itoa(PrivateLAN),
		"IONOS_API_URL":        p.Cloud.URL,
		"IONOS_CA_FILE":        p.Cloud.CAFile,
	}
	for _, some := range []map[string]string{link, settings, options.Inventory} {
		for name, value := range some {
			p.Inventory.Set(name, value)
		}
	}
	return nil
}

// serverSettings are an inventory's side of the link, with a certificate of its own CA.
func serverSettings(h *Component, own, peer *pki.CA, san string) (map[string]string, error) {
	cert, key, err := issue(own, h.dir, inventoryCert(h, san))
	if err != nil {
		return nil, err
	}
	peerCA, err := peer.Write(h.dir, "peer-ca")
	if err != nil {
		return nil, err
	}
	allowed := filepath.Join(h.dir, "clients.yaml")
	return map[string]string{
		"LISTEN_ADDRESS": port(h.Address, LinkPort),
		"TLS_CERT_FILE":  cert, "TLS_KEY_FILE": key, "TLS_PEER_CA_FILE": peerCA,
		"ALLOWED_CLIENTS_FILE": allowed,
	}, os.WriteFile(allowed, []byte(clients), 0o600)
}

func (p *Pair) hireWriter(ctx context.Context, i int, options Options, own, peer *pki.CA) error {
	if err := p.Consuming.Apply(ctx, filepath.Join(p.root, "deploy", "manifests", "writer-rbac.yaml")); err != nil {
		return err
	}
	kubeconfig, err := p.Consuming.ServiceAccountKubeconfig(ctx, Namespace, "slicefeed-writer")
	if err != nil {
		return err
	}
	writer, err := newComponent(p.dir, filepath.Join(options.Bin, "slicefeed-writer"), writerAddress(i), "writer-"+itoa(i+1))
	if err != nil {
		return err
	}
	cert, key, err := issue(own, writer.dir, p.WriterCert())
	if err != nil {
		return err
	}
	peerCA, err := peer.Write(writer.dir, "peer-ca")
	if err != nil {
		return err
	}
	settings := map[string]string{
		"INVENTORY_ADDRESS": port(InventoryAddress, LinkPort), "INVENTORY_SAN": InventorySAN,
		"TLS_CERT_FILE": cert, "TLS_KEY_FILE": key, "TLS_PEER_CA_FILE": peerCA,
		"TARGET_KUBECONFIG": kubeconfig, "TARGET_NAMESPACE": Namespace, "TARGET_SERVICE_NAME": Service,
		"SECURED_SUBNET_CIDR": Subnet,
	}
	for _, some := range []map[string]string{settings, options.Writer} {
		for name, value := range some {
			writer.Set(name, value)
		}
	}
	p.Writers = append(p.Writers, writer)
	return nil
}

func (p *Pair) hireOperator(own, peer *pki.CA) error {
	dir := filepath.Join(p.dir, "operator")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	cert, key, err := issue(own, dir, pki.Cert{CommonName: "operator", URIs: []string{OperatorSAN}, Usage: pki.Client})
	if err != nil {
		return err
	}
	peerCA, err := peer.Write(dir, "peer-ca")
	p.Operator = Operator{CertFile: cert, KeyFile: key, CAFile: peerCA}
	return err
}

func issue(ca *pki.CA, dir string, cert pki.Cert) (certFile, keyFile string, err error) {
	pair, err := ca.Issue(cert)
	if err != nil {
		return "", "", err
	}
	return pair.Write(dir, "tls")
}
