package link

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Role is what a client may do.
type Role string

// The roles. An operator may do what a subscriber may, and sees what is left out and why.
const (
	RoleSubscriber Role = "subscriber"
	RoleOperator   Role = "operator"
)

// maxViewLabels is how many labels a node has in a message at most, by the contract.
const maxViewLabels = 256

// View is what a client may see.
type View struct {
	NodeSelector labels.Selector // never nil; everything, unless the list says otherwise
	Labels       []string        // keys of the node labels that are exported to it, sorted
}

// Grant is what the list gives to one client. It is immutable.
type Grant struct {
	SAN  SAN
	Role Role
	View View
}

func (g Grant) equal(o Grant) bool {
	return g.SAN == o.SAN && g.Role == o.Role && slices.Equal(g.View.Labels, o.View.Labels) &&
		g.View.NodeSelector.String() == o.View.NodeSelector.String()
}

// Clients is the list of those who may call, from ALLOWED_CLIENTS_FILE. It is kept fresh by
// the server that it belongs to.
type Clients struct {
	path string
	text []byte // of what is in use; read and written by loading only

	version atomic.Uint64 // of entries

	mu      sync.RWMutex
	entries map[SAN]*clientEntry
}

type clientEntry struct {
	grant   Grant
	changed chan struct{} // closed when the grant is no longer as it is here
	usage   *clientUsage  // the client's, however its grant changes
}

// OpenClients reads the list. A list that is missing, empty or wrong is an error that names
// every problem.
func OpenClients(path string) (*Clients, error) {
	c := &Clients{path: path}
	if _, err := c.loadFile(); err != nil {
		return nil, err
	}
	return c, nil
}

// findEntry returns the entry of the client with these names. A certificate with names of two clients of
// the list has none: it would be a guess.
func (c *Clients) findEntry(all []SAN) *clientEntry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found *clientEntry
	for _, name := range all {
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

// Watch returns a channel that is closed as soon as the list no longer gives just this grant.
func (c *Clients) Watch(g Grant) <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.entries[g.SAN]; e != nil && e.grant.equal(g) {
		return e.changed
	}
	over := make(chan struct{})
	close(over)
	return over
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
	next := make(map[SAN]*clientEntry, len(grants))
	for _, g := range grants {
		used := newClientUsage()
		if old := c.entries[g.SAN]; old != nil {
			if old.grant.equal(g) {
				next[g.SAN] = old
				continue
			}
			used = old.usage
		}
		next[g.SAN] = &clientEntry{grant: g, changed: make(chan struct{}), usage: used}
	}
	previous := c.entries
	c.entries = next
	c.version.Add(1)
	for san, old := range previous {
		if next[san] != old {
			close(old.changed)
		}
		if next[san] == nil {
			time.AfterFunc(revokedGrace, old.usage.closeRevoked)
		}
	}
}
