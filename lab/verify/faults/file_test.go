package faults

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// What the components call the files of their link in the log.
const (
	certificate    = "cert"
	peerCAs        = "ca"
	allowedClients = "clients"
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
	component *pair.Component
	what      string
	before    int
}

func countReloads(component *pair.Component, what string) reloadCount {
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

// token corrupts the file with the token of the cloud, and waits until a listing has failed.
func token(corrupt corruption) fault {
	return func(r *run) {
		path := filepath.Join(r.Inventory.Dir(), "ionos-token")
		r.restoreAtEnd(path)
		r.must(corrupt(path))
		r.must(waitMetric(r.ctx, r.Inventory, addressesSynced, equals(0)))
	}
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

// reloaded is how long it may take until repaired files are read, and a link that was rejected for a while is tried again.
const reloaded = 45 * time.Second
