package faults

import (
	"context"
	"path/filepath"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

const certificates = "certificates"

// renew has a certificate signed and put in place, and returns when the half has taken it.
func renew(ctx context.Context, half *pair.Half, ca *pki.CA, cert pki.Cert) error {
	issued, err := ca.Issue(cert)
	if err != nil {
		return err
	}
	met := rereads(half, certificate)
	if _, _, err := issued.Write(half.Dir(), "tls"); err != nil {
		return err
	}
	return met(ctx)
}

// keepCertificate notes how to put a half's present certificate back.
func (u *steps) keepCertificate(half *pair.Half) error {
	return u.keep(filepath.Join(half.Dir(), "tls.crt"), filepath.Join(half.Dir(), "tls.key"))
}

// inventoryBears gives the inventory a certificate that its own CA has signed, and makes the
// writers connect anew.
func inventoryBears(different func(*pki.Cert)) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		if err := undo.keepCertificate(s.Inventory); err != nil {
			return err
		}
		cert := s.InventoryCert()
		different(&cert)
		if err := renew(ctx, s.Inventory, s.CAs.Inventory, cert); err != nil {
			return err
		}
		return s.relink()
	})
}

// writersBear does the same for the writers.
func writersBear(different func(*pki.Cert)) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		cert := s.WriterCert()
		different(&cert)
		for _, writer := range s.Writers {
			if err := undo.keepCertificate(writer); err != nil {
				return err
			}
			if err := renew(ctx, writer, s.CAs.Writer, cert); err != nil {
				return err
			}
		}
		return s.relink()
	})
}

func expired(c *pki.Cert) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute)
}
func notYet(c *pki.Cert) { c.NotBefore = time.Now().Add(time.Hour) }

func misnamed(c *pki.Cert)   { c.URIs, c.DNS = []string{pair.InventorySAN + "-typo"}, nil }
func forClients(c *pki.Cert) { c.Usage = pki.Client }

// expiresInUse has the certificates of both sides end while a connection that was made by them goes on.
func expiresInUse() Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		if err := undo.keepCertificate(s.Inventory); err != nil {
			return err
		}
		ends := time.Now().Add(15 * time.Second) // longer than it takes to be read
		cert := s.InventoryCert()
		cert.NotAfter = ends
		if err := renew(ctx, s.Inventory, s.CAs.Inventory, cert); err != nil {
			return err
		}
		if err := s.relink(); err != nil {
			return err
		}
		wait(ctx, time.Until(ends)+time.Second) // certificates count in whole seconds
		return nil
	})
}

// rotated renews the certificates of both sides one after the other, by the same CAs, and makes the
// writers connect anew after each. They are not put back.
func rotated() Fault {
	return inSteps(func(ctx context.Context, s *Scene, _ *steps) error {
		if err := renew(ctx, s.Inventory, s.CAs.Inventory, s.InventoryCert()); err != nil {
			return err
		}
		if err := s.relink(); err != nil {
			return err
		}
		for _, writer := range s.Writers {
			if err := renew(ctx, writer, s.CAs.Writer, s.WriterCert()); err != nil {
				return err
			}
		}
		return s.relink()
	})
}

// trust has the writers, and the operator, take these CAs for the inventory's side.
func (s *Scene) trust(ctx context.Context, cas ...*pki.CA) error {
	var bundle []byte
	for _, ca := range cas {
		bundle = append(bundle, ca.PEM()...)
	}
	if err := pki.WriteFile(s.Operator.CAFile, bundle); err != nil {
		return err
	}
	for _, writer := range s.Writers {
		met := rereads(writer, peerCAs)
		if err := pki.WriteFile(filepath.Join(writer.Dir(), "peer-ca.crt"), bundle); err != nil {
			return err
		}
		if err := met(ctx); err != nil {
			return err
		}
	}
	return nil
}

// caRotated gives the inventory's side another CA. With overlap the writers trust both before the
// inventory changes, and the new one alone at the lift; else they hear of it at the lift only.
func caRotated(overlap bool) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		next, err := pki.NewCA("inventory's side, renewed")
		if err != nil {
			return err
		}
		if overlap {
			if err := s.trust(ctx, s.CAs.Inventory, next); err != nil {
				return err
			}
		}
		undo.then(func(ctx context.Context) error {
			if err := s.trust(ctx, next); err != nil {
				return err
			}
			return s.relink()
		})
		if err := renew(ctx, s.Inventory, next, s.InventoryCert()); err != nil {
			return err
		}
		s.CAs.Inventory = next
		return s.relink()
	})
}

func certificateRows() []Row {
	return []Row{
		{Name: "the inventory's certificate has expired, and a node dies", Part: certificates, Fault: inventoryBears(expired), Meanwhile: Dies, Through: noticed, Within: reloaded},
		{Name: "the inventory's certificate is not valid yet, and a node joins", Part: certificates, Fault: inventoryBears(notYet), Meanwhile: Joins, Within: reloaded},
		{Name: "the writers' certificates have expired, and two nodes are replaced", Part: certificates, Fault: writersBear(expired), Meanwhile: Rolls, Within: reloaded, Writes: 4},
		{Name: "the writers' certificates are not valid yet, and a node dies", Part: certificates, Fault: writersBear(notYet), Meanwhile: Dies, Through: noticed, Within: reloaded},
		{Name: "the inventory's certificate bears a mistyped name, and a node joins", Part: certificates, Fault: inventoryBears(misnamed), Meanwhile: Joins, Within: reloaded},
		{
			Name: "the inventory's certificate is renewed for clients only, so that it is not taken, and a node joins", Part: certificates, Fault: inventoryBears(forClients),
			Meanwhile: Joins, Through: onward, Within: follow,
		},
		{
			Name: "the inventory's certificate expires while the link is in use, and two nodes are replaced", Part: certificates, Fault: expiresInUse(), Meanwhile: Rolls,
			Through: onward, Within: reloaded, Writes: 2,
		},
		{
			Name: "the certificates of both sides are rotated under load, and a node joins", Part: certificates, Fault: rotated(), Meanwhile: Joins,
			Through: onward, Within: follow,
		},
		{
			Name: "the CA of the inventory's side is rotated with overlap, and two nodes are replaced", Part: certificates, Fault: caRotated(true), Meanwhile: Rolls,
			Through: onward, Within: onward, Writes: 2,
		},
		{
			Name: "the CA of the inventory's side is rotated without overlap, and a node dies", Part: certificates, Fault: caRotated(false), Meanwhile: Dies,
			Through: noticed, Within: reloaded,
		},
		{
			Name: "the certificate is rotated, and its key not: they do not fit, and a node joins", Part: certificates, Fault: halfRotated(), Meanwhile: Joins,
			Through: onward, Within: follow,
		},
	}
}

// halfRotated is a rotation of the inventory's certificate that stopped after the first file.
func halfRotated() Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		return harmed(theInventory, certificate, "tls.crt", func(path string) error {
			issued, err := s.CAs.Inventory.Issue(s.InventoryCert())
			if err != nil {
				return err
			}
			return pki.WriteFile(path, issued.CertPEM)
		})(ctx, s)
	}
}
