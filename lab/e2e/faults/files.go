package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/tinydisk"
)

const (
	theLink    = "files of the link"
	theList    = "list of clients"
	theToken   = "token of the cloud"
	theRecords = "file of records"
)

// What the halves say of the files of their link.
const (
	certificate = "certificate"
	peerCAs     = "peer CAs"
	clientList  = "allowed clients"
)

const addressesSynced = `slicefeed_inventory_source_synced{part="addresses"}`

// harm does something to a file.
type harm func(path string) error

func removed(path string) error { return os.Remove(path) }
func emptied(path string) error { return os.WriteFile(path, nil, 0o600) }

func garbage(path string) error { return os.WriteFile(path, []byte("\x00\xff}{ rubbish: [\n"), 0o600) }

// halfWritten is what a disk that fills up leaves, or a writer that is killed.
func halfWritten(path string) error {
	whole, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, whole[:len(whole)/2], 0o600)
}

// unreadable has a directory in the file's place: root may read whatever is a file.
func unreadable(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

// harmed harms a file of the inventory's, or of both writers', and waits until they have met it. Then
// it breaks the connections of the link, so that new ones have to be made by what is left.
func harmed(who who, what, file string, how harm) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		for _, half := range halves {
			path := filepath.Join(half.Dir(), file)
			if err := undo.keep(path); err != nil {
				return err
			}
			met := rereads(half, what)
			if err := how(path); err != nil {
				return err
			}
			if err := met(ctx); err != nil {
				return err
			}
		}
		return s.relink()
	})
}

// rereads begins to wait for a half to take in, or to refuse, a file of its link to the default source.
func rereads(half *pair.Half, what string) func(context.Context) error {
	link := "feed"
	if strings.HasPrefix(half.Name, "writer") {
		link = string(Default)
	}
	words := []string{"reload", `"link":"` + link + `"`, `"file":"` + what + `"`}
	before := lines(half, words...)
	return func(ctx context.Context) error {
		return eventually(ctx, half.Name+" reads its "+what+" again", func() bool { return lines(half, words...) > before })
	}
}

// relink breaks all connections of the link; they can be made again at once.
func (s *Scene) relink() error {
	for _, writer := range s.Writers {
		s.links[writer].down()
		if err := s.links[writer].up(); err != nil {
			return err
		}
	}
	return nil
}

// fullDisk has the files of a half's link on a disk with a page left, when all of them are renewed: the
// first is written in part, and the others are there and empty.
func fullDisk(who who, files ...string) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		for _, half := range halves {
			disk, err := tinydisk.New(64 << 10)
			if err != nil {
				return err
			}
			undo.then(func(context.Context) error { return disk.Close() })
			met := rereads(half, certificate)
			for _, file := range files {
				if err := undo.keep(filepath.Join(half.Dir(), file)); err != nil {
					return err
				}
			}
			if err := disk.Fill(1); err != nil {
				return err
			}
			for _, file := range files {
				if err := renewOnto(disk, filepath.Join(half.Dir(), file)); err != nil {
					return err
				}
			}
			if err := met(ctx); err != nil {
				return err
			}
		}
		return s.relink()
	})
}

// renewOnto puts a new version of a file on a disk, and a link in the old one's place, as a kubelet
// does with what it mounts. That the disk is full is nothing to it.
func renewOnto(disk *tinydisk.Disk, path string) error {
	whole, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	chain := whole
	for len(chain) < 6<<10 { // no more than what a chain with some intermediates has
		chain = append(chain, whole...)
	}
	onDisk := disk.Path(filepath.Base(path))
	if err := os.WriteFile(onDisk, chain, 0o600); err == nil {
		return fmt.Errorf("%s fits on a disk that should be full", path)
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink(onDisk, path)
}

// cutAtALine leaves the list of clients as a valid list, without the writers.
func cutAtALine(path string) error {
	return os.WriteFile(path, []byte("clients:\n- san: "+pair.OperatorSAN+"\n  role: operator\n"), 0o600)
}

// token does something to the file with the cloud's token, and waits until a listing has failed.
func token(how harm) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		path := filepath.Join(s.Inventory.Dir(), "ionos-token")
		if err := undo.keep(path); err != nil {
			return err
		}
		if err := how(path); err != nil {
			return err
		}
		return s.waitMetric(ctx, s.Inventory, addressesSynced, equals(0))
	})
}

// tokenExpires has the cloud know another token only, which is put into the file at the lift.
func tokenExpires() Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		path := filepath.Join(s.Inventory.Dir(), "ionos-token")
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		renewed := strings.TrimSpace(string(before)) + "-renewed"
		s.Cloud.SetToken(renewed)
		undo.then(func(context.Context) error { return pki.WriteFile(path, []byte(renewed+"\n")) })
		return s.waitMetric(ctx, s.Inventory, addressesSynced, equals(0))
	})
}

// told does something to the second inventory's file of records.
func told(how harm) Fault {
	return inSteps(func(_ context.Context, s *Scene, undo *steps) error {
		path := filepath.Join(s.Second.Dir(), "nodes.json")
		undo.then(func(context.Context) error {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return s.tellSecond()
		})
		return how(path)
	})
}

func noRecords(path string) error { return pki.WriteFile(path, []byte("[]\n")) }

// recordsOnAFullDisk truncates the file and cannot write it again.
func recordsOnAFullDisk() Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		disk, err := tinydisk.New(8 << 10)
		if err != nil {
			return err
		}
		undo.then(func(context.Context) error { return disk.Close() })
		lift, err := told(func(path string) error {
			if err := disk.Fill(0); err != nil {
				return err
			}
			return renewOnto(disk, path)
		})(ctx, s)
		if err == nil {
			undo.then(lift)
		}
		return err
	})
}

// secondDiesUnsaid is a death that the other cluster's inventory does not tell: its file cannot be written.
var secondDiesUnsaid = Change{Name: "a node of the other cluster dies, which its inventory cannot tell", Writes: 2, make: func(_ context.Context, s *Scene) error {
	m := s.Members(Second)[0]
	m.dead = true
	return m.Set(backend.Refuse)
}}

// reloaded is how long it may take until files that were mended are read, and a link is tried again that
// was refused for a while.
const reloaded = 45 * time.Second

func fileRows() []Row {
	var rows []Row
	for _, one := range []struct {
		name, part, what, file string
		who                    who
		how                    harm
	}{
		{"the inventory's certificate is removed", theLink, certificate, "tls.crt", theInventory, removed},
		{"the inventory's certificate is half written", theLink, certificate, "tls.crt", theInventory, halfWritten},
		{"the inventory's key is emptied", theLink, certificate, "tls.key", theInventory, emptied},
		{"the inventory's CA of the writers cannot be read", theLink, peerCAs, "peer-ca.crt", theInventory, unreadable},
		{"the writers' certificates are garbage", theLink, certificate, "tls.crt", bothWriters, garbage},
		{"the writers' CA of the inventory is half written", theLink, peerCAs, "peer-ca.crt", bothWriters, halfWritten},
		{"the list of clients is emptied", theList, clientList, "clients.yaml", theInventory, emptied},
		{"the list of clients is removed", theList, clientList, "clients.yaml", theInventory, removed},
		{"the list of clients is garbage", theList, clientList, "clients.yaml", theInventory, garbage},
	} {
		rows = append(rows, Row{
			Name: one.name + ", and a node joins", Part: one.part, Fault: harmed(one.who, one.what, one.file, one.how),
			Meanwhile: Joins, Through: onward, Within: follow,
		})
	}
	return append(rows,
		Row{
			Name: "the inventory's files are renewed on a full disk, and a node joins", Part: theLink, Fault: fullDisk(theInventory, "tls.crt", "tls.key", "peer-ca.crt", "clients.yaml"),
			Meanwhile: Joins, Through: onward, Within: follow,
		},
		Row{
			Name: "the writers' files are renewed on a full disk, and two nodes are replaced", Part: theLink, Fault: fullDisk(bothWriters, "tls.crt", "tls.key", "peer-ca.crt"),
			Meanwhile: Rolls, Through: onward, Within: follow, Writes: 2,
		},
		Row{
			Name: "the list of clients is half written, cut where the writers' entry begins, and a node dies", Part: theList, Fault: harmed(theInventory, clientList, "clients.yaml", cutAtALine),
			Meanwhile: Dies, Through: noticed, Within: reloaded,
		},
		Row{Name: "the token is emptied, and a node joins", Part: theToken, Fault: token(emptied), Meanwhile: Joins, Within: back},
		Row{Name: "the token is removed, and two nodes are replaced", Part: theToken, Fault: token(removed), Meanwhile: Rolls, Within: back, Writes: 4},
		Row{Name: "the token is garbage, and a node dies", Part: theToken, Fault: token(garbage), Meanwhile: Dies, Through: noticed, Within: back},
		Row{Name: "the token expires, and a node joins; then it is renewed", Part: theToken, Fault: tokenExpires(), Meanwhile: Joins, Within: back},
		Row{Name: "the file of records is half written, and a node of its cluster dies", Part: theRecords, Fault: told(halfWritten), Meanwhile: secondDiesUnsaid, Through: noticed, Within: follow},
		Row{Name: "the file of records is emptied", Part: theRecords, Fault: told(emptied), Lasts: 12 * time.Second, Within: follow},
		Row{Name: "the file of records is removed, and a node of its cluster dies", Part: theRecords, Fault: told(removed), Meanwhile: secondDiesUnsaid, Through: noticed, Within: follow},
		Row{Name: "the file of records cannot be read", Part: theRecords, Fault: told(unreadable), Lasts: 6 * time.Second, Within: follow},
		Row{Name: "the file of records is written on a full disk, and a node of its cluster dies", Part: theRecords, Fault: recordsOnAFullDisk(), Meanwhile: secondDiesUnsaid, Through: noticed, Within: follow},
		Row{Name: "the file of records lists nobody for three seconds", Part: theRecords, Fault: told(noRecords), Lasts: 3 * time.Second, Within: follow},
	)
}
