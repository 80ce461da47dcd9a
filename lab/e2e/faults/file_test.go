package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/tinydisk"
)

const (
	tlsFiles    = "TLS files"
	clientList  = "client list"
	ionosToken  = "IONOS token"
	recordsFile = "records file"
)

// What the components call the files of their link in the log.
const (
	certificate    = "certificate"
	peerCAs        = "peer CAs"
	allowedClients = "allowed clients"
)

// corruption does something to a file.
type corruption func(path string) error

func removed(path string) error { return os.Remove(path) }
func emptied(path string) error { return os.WriteFile(path, nil, 0o600) }
func garbage(path string) error { return os.WriteFile(path, []byte("\x00\xff}{ rubbish: [\n"), 0o600) }

// truncated is what a full disk leaves, or a process that is killed while it writes.
func truncated(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content[:len(content)/2], 0o600)
}

// unreadable puts a directory in the file's place: root may read any file.
func unreadable(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

// withoutWriters leaves a valid client list.
func withoutWriters(path string) error {
	return os.WriteFile(path, []byte("clients:\n- san: "+pair.OperatorSAN+"\n  role: operator\n"), 0o600)
}

// restoreAtEnd puts a file back as it is now.
func (r *run) restoreAtEnd(path string) {
	content, err := os.ReadFile(path)
	r.must(err)
	r.onEnd(func(context.Context) error {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return pki.WriteFile(path, content)
	})
}

// corrupted corrupts a file of processes and waits until they have read it. Then it closes the connections to the
// inventory, so that new ones need what is left.
func corrupted(who components, what, file string, corrupt corruption) fault {
	return func(r *run) {
		for _, component := range who(r) {
			path := filepath.Join(component.Dir(), file)
			r.restoreAtEnd(path)
			reloads := countReloads(component, what)
			r.must(corrupt(path))
			r.must(reloads.wait(r.ctx))
		}
		reconnect(r)
	}
}

// reloadCount waits for a component to read a file of its link to the default source again, successfully or not.
type reloadCount struct {
	component *pair.Half
	what      string
	before    int
}

func countReloads(component *pair.Half, what string) reloadCount {
	c := reloadCount{component: component, what: what}
	c.before = c.count()
	return c
}

func (c reloadCount) count() int {
	link := "feed"
	if strings.HasPrefix(c.component.Name, "writer") {
		link = string(first)
	}
	return logged(c.component, "reload", `"link":"`+link+`"`, `"file":"`+c.what+`"`)
}

func (c reloadCount) wait(ctx context.Context) error {
	return eventually(ctx, c.component.Name+" reads its "+c.what+" again", func() bool { return c.count() > c.before })
}

// renewedOnFullDisk renews all files of a link on a disk with one free page: the first is written in part, the others
// are empty.
func renewedOnFullDisk(who components, files ...string) fault {
	return func(r *run) {
		for _, component := range who(r) {
			disk := r.newDisk(64<<10, 1, func() {
				for _, file := range files {
					r.restoreAtEnd(filepath.Join(component.Dir(), file))
				}
			})
			reloads := countReloads(component, certificate)
			for _, file := range files {
				r.must(renewOnto(disk, filepath.Join(component.Dir(), file)))
			}
			r.must(reloads.wait(r.ctx))
		}
		reconnect(r)
	}
}

// newDisk makes a small disk that is full except for some pages. Its files have to be restored before it is closed.
func (r *run) newDisk(size, freePages int, restoreFiles func()) *tinydisk.Disk {
	disk, err := tinydisk.New(size)
	r.must(err)
	r.onEnd(func(context.Context) error { return disk.Close() })
	restoreFiles()
	r.must(disk.Fill(freePages))
	return disk
}

// renewOnto writes a new version of a file to a full disk and puts a link to it in the old one's place, as a kubelet
// does with what it mounts.
func renewOnto(disk *tinydisk.Disk, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	chain := content
	for len(chain) < 6<<10 { // as a chain with some intermediates
		chain = append(chain, content...)
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

// token corrupts the file with the token of the cloud, and waits until a listing has failed.
func token(corrupt corruption) fault {
	return func(r *run) {
		path := filepath.Join(r.Inventory.Dir(), "ionos-token")
		r.restoreAtEnd(path)
		r.must(corrupt(path))
		r.must(waitMetric(r.ctx, r.Inventory, addressesSynced, equals(0)))
	}
}

// tokenExpires has the cloud accept only another token, which the file has at the end of the fault.
func tokenExpires(r *run) {
	path := filepath.Join(r.Inventory.Dir(), "ionos-token")
	content, err := os.ReadFile(path)
	r.must(err)
	renewed := strings.TrimSpace(string(content)) + "-renewed"
	r.Cloud.SetToken(renewed)
	r.onEnd(func(context.Context) error { return pki.WriteFile(path, []byte(renewed+"\n")) })
	r.must(waitMetric(r.ctx, r.Inventory, addressesSynced, equals(0)))
}

// records corrupts the file of the second inventory.
func records(corrupt corruption) fault {
	return func(r *run) {
		r.restoreRecordsAtEnd()
		r.must(corrupt(r.recordsPath()))
	}
}

func (e *env) recordsPath() string { return filepath.Join(e.second.Dir(), "nodes.json") }

func (r *run) restoreRecordsAtEnd() {
	r.onEnd(func(context.Context) error {
		if err := os.RemoveAll(r.recordsPath()); err != nil {
			return err
		}
		return r.writeRecords()
	})
}

func noRecords(path string) error { return pki.WriteFile(path, []byte("[]\n")) }

// recordsOnFullDisk truncates the file and cannot write it again.
func recordsOnFullDisk(r *run) {
	r.must(renewOnto(r.newDisk(8<<10, 0, r.restoreRecordsAtEnd), r.recordsPath()))
}

// reloaded is how long it may take until repaired files are read, and a link that was rejected for a while is tried again.
const reloaded = 45 * time.Second

func fileRows() []row {
	ignored := func(r row) row { // the old content stays in use
		r.during, r.correctDuring, r.correctAfter = joins, slowed, undisturbed
		return r
	}
	inventoryFiles, writerFiles := []string{
		"tls.crt",
		"tls.key",
		"peer-ca.crt",
		"clients.yaml",
	}, []string{
		"tls.crt",
		"tls.key",
		"peer-ca.crt",
	}
	return []row{
		ignored(
			row{
				kind:   tlsFiles,
				fault:  "the inventory's certificate is removed",
				inject: corrupted(theInventory, certificate, "tls.crt", removed),
				short:  true,
			},
		),
		ignored(
			row{
				kind:   tlsFiles,
				fault:  "the inventory's certificate is truncated",
				inject: corrupted(theInventory, certificate, "tls.crt", truncated),
			},
		),
		ignored(
			row{kind: tlsFiles, fault: "the inventory's key is emptied", inject: corrupted(theInventory, certificate, "tls.key", emptied)},
		),
		ignored(
			row{
				kind:   tlsFiles,
				fault:  "the inventory's CA of the writers is unreadable",
				inject: corrupted(theInventory, peerCAs, "peer-ca.crt", unreadable),
			},
		),
		ignored(
			row{
				kind:   tlsFiles,
				fault:  "the writers' certificates are garbage",
				inject: corrupted(bothWriters, certificate, "tls.crt", garbage),
			},
		),
		ignored(
			row{
				kind:   tlsFiles,
				fault:  "the writers' CA of the inventory is truncated",
				inject: corrupted(bothWriters, peerCAs, "peer-ca.crt", truncated),
			},
		),
		ignored(
			row{kind: clientList, fault: "emptied", inject: corrupted(theInventory, allowedClients, "clients.yaml", emptied), short: true},
		),
		ignored(row{kind: clientList, fault: "removed", inject: corrupted(theInventory, allowedClients, "clients.yaml", removed)}),
		ignored(row{kind: clientList, fault: "garbage", inject: corrupted(theInventory, allowedClients, "clients.yaml", garbage)}),
		ignored(
			row{
				kind:   tlsFiles,
				fault:  "the inventory's files are renewed on a full disk",
				inject: renewedOnFullDisk(theInventory, inventoryFiles...),
			},
		),
		{
			kind:          tlsFiles,
			fault:         "the writers' files are renewed on a full disk",
			inject:        renewedOnFullDisk(bothWriters, writerFiles...),
			during:        replaced,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:          clientList,
			fault:         "cut off before the writers' entry",
			inject:        corrupted(theInventory, allowedClients, "clients.yaml", withoutWriters),
			during:        dies,
			correctDuring: detected,
			correctAfter:  reloaded,
		},
		{kind: ionosToken, fault: "emptied", inject: token(emptied), during: joins, correctAfter: retried, short: true},
		{kind: ionosToken, fault: "removed", inject: token(removed), during: replaced, correctAfter: retried},
		{kind: ionosToken, fault: "garbage", inject: token(garbage), during: dies, correctDuring: detected, correctAfter: retried},
		{kind: ionosToken, fault: "expires, and is renewed", inject: tokenExpires, during: joins, correctAfter: retried},
		{
			kind:          recordsFile,
			fault:         "truncated",
			inject:        records(truncated),
			during:        secondBackendDies,
			correctDuring: detected,
			correctAfter:  undisturbed,
			short:         true,
		},
		{kind: recordsFile, fault: "emptied", inject: records(emptied), lasts: 12 * time.Second, correctAfter: undisturbed},
		{
			kind:          recordsFile,
			fault:         "removed",
			inject:        records(removed),
			during:        secondBackendDies,
			correctDuring: detected,
			correctAfter:  undisturbed,
		},
		{kind: recordsFile, fault: "unreadable", inject: records(unreadable), lasts: 6 * time.Second, correctAfter: undisturbed},
		{
			kind:          recordsFile,
			fault:         "written on a full disk",
			inject:        recordsOnFullDisk,
			during:        secondBackendDies,
			correctDuring: detected,
			correctAfter:  undisturbed,
		},
		{kind: recordsFile, fault: "lists no node for 3 s", inject: records(noRecords), lasts: 3 * time.Second, correctAfter: undisturbed},
	}
}
