package faults

import (
	"context"
	"path/filepath"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// renew puts a new certificate in place, and returns when the component has read it.
func (r *run) renew(component *pair.Component, ca *pki.CA, cert pki.Cert) {
	issued, err := ca.Issue(cert)
	r.must(err)
	reloads := countReloads(component, certificate)
	_, _, err = issued.Write(component.Dir(), "tls")
	r.must(err)
	r.must(reloads.wait(r.ctx))
}

func (r *run) restoreCertificateAtEnd(component *pair.Component) {
	r.restoreAtEnd(filepath.Join(component.Dir(), "tls.crt"))
	r.restoreAtEnd(filepath.Join(component.Dir(), "tls.key"))
}

// inventoryCert gives the inventory a different certificate of the right CA, and closes the writers' connections.
func inventoryCert(alter func(*pki.Cert)) fault {
	return func(r *run) {
		r.restoreCertificateAtEnd(r.Inventory)
		cert := r.InventoryCert()
		alter(&cert)
		r.renew(r.Inventory, r.CAs.Inventory, cert)
		reconnect(r)
	}
}

func expired(c *pki.Cert) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute)
}
func misnamed(c *pki.Cert) { c.URIs, c.DNS = []string{pair.InventorySAN + "-typo"}, nil }

// trust has the writers and the operator trust these CAs for the inventory.
func (r *run) trust(ctx context.Context, cas ...*pki.CA) error {
	var bundle []byte
	for _, ca := range cas {
		bundle = append(bundle, ca.PEM()...)
	}
	if err := pki.WriteFile(r.Operator.CAFile, bundle); err != nil {
		return err
	}
	for _, writer := range r.Writers {
		reloads := countReloads(writer, peerCAs)
		if err := pki.WriteFile(filepath.Join(writer.Dir(), "peer-ca.crt"), bundle); err != nil {
			return err
		}
		if err := reloads.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// caReplaced gives the inventory a certificate of another CA. With overlap the writers trust both CAs before that, and
// the new one alone at the end of the fault; without it they learn of the new one at the end only.
func caReplaced(overlap bool) fault {
	return func(r *run) {
		next, err := pki.NewCA("inventory's side, renewed")
		r.must(err)
		if overlap {
			r.must(r.trust(r.ctx, r.CAs.Inventory, next))
		}
		r.onEnd(func(ctx context.Context) error {
			if err := r.trust(ctx, next); err != nil {
				return err
			}
			reconnect(r)
			return nil
		})
		r.renew(r.Inventory, next, r.InventoryCert())
		r.CAs.Inventory = next
		reconnect(r)
	}
}

// keyNotRenewed is a renewal of the inventory's certificate that stopped after the first file.
func keyNotRenewed(r *run) {
	issued, err := r.CAs.Inventory.Issue(r.InventoryCert())
	r.must(err)
	corrupted(theInventory, certificate, "tls.crt", func(path string) error { return pki.WriteFile(path, issued.CertPEM) })(r)
}
