package link

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
)

// Role determines which methods a client may call.
type Role string

// The roles. An operator may do everything that a subscriber may, and also sees omitted nodes and why
// they are omitted.
const (
	RoleSubscriber Role = "subscriber"
	RoleOperator   Role = "operator"
)

// maxViewLabels is the maximum number of labels that a node may have in a message of the contract.
const maxViewLabels = 256

// View is the subset of nodes and labels that a client may see.
type View struct {
	NodeSelector labels.Selector // never nil; selects everything by default
	Labels       []string        // keys of the exported node labels, sorted
}

// Grant is the permission of one listed client. It is immutable.
type Grant struct {
	SAN  certificate.SAN
	Role Role
	View View
}

func (g Grant) equal(o Grant) bool {
	return g.SAN == o.SAN && g.Role == o.Role && slices.Equal(g.View.Labels, o.View.Labels) &&
		g.View.NodeSelector.String() == o.View.NodeSelector.String()
}

// Clients is the client list: the allowed clients, from ALLOWED_CLIENTS_FILE. The server that owns it
// reloads it.
type Clients struct {
	path string
	text []byte // the file's content in use; only accessed by loadFile

	mu      sync.RWMutex
	entries map[certificate.SAN]*clientEntry
}

type clientEntry struct {
	grant   Grant
	changed chan struct{} // closed when the list no longer has this grant
	usage   *clientUsage  // kept when the grant changes
}

// OpenClients reads the client list. Its error names every problem of a list that is missing, empty or
// invalid.
func OpenClients(path string) (*Clients, error) {
	c := &Clients{path: path}
	if _, err := c.loadFile(); err != nil {
		return nil, err
	}
	return c, nil
}

// findEntry returns the entry of the client with these names. A certificate with the names of two listed
// clients has none, because choosing one would be a guess.
func (c *Clients) findEntry(names []certificate.SAN) *clientEntry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found *clientEntry
	for _, name := range names {
		e := c.entries[name]
		if e == nil || e == found {
			continue
		}
		if found != nil {
			return nil
		}
		found = e
	}
	return found
}

// Watch returns a channel that is closed when the list no longer has exactly this grant.
func (c *Clients) Watch(g Grant) <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.entries[g.SAN]; e != nil && e.grant.equal(g) {
		return e.changed
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (c *Clients) loadFile() (bool, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return false, &fileError{"clients", c.path, stripPath(err)}
	}
	if c.text != nil && bytes.Equal(text, c.text) {
		return false, nil
	}
	grants, err := parseClients(text)
	if err != nil {
		return false, &fileError{"clients", c.path, err}
	}
	c.text = text
	c.replaceGrants(grants)
	return true, nil
}

func (c *Clients) replaceGrants(grants []Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[certificate.SAN]*clientEntry, len(grants))
	for _, g := range grants {
		usage := newClientUsage()
		if old := c.entries[g.SAN]; old != nil {
			if old.grant.equal(g) {
				next[g.SAN] = old
				continue
			}
			usage = old.usage
		}
		next[g.SAN] = &clientEntry{grant: g, changed: make(chan struct{}), usage: usage}
	}
	previous := c.entries
	c.entries = next
	for san, old := range previous {
		if next[san] != old {
			close(old.changed)
		}
		if next[san] == nil {
			time.AfterFunc(revokedGrace, old.usage.closeRevoked)
		}
	}
}
