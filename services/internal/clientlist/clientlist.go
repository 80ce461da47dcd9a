// Package clientlist is the list of a server's clients, ALLOWED_CLIENTS_FILE: who may call, in which role,
// and which exported Services each may read. It guarantees that a client without an entry has no permission, and tells when an
// entry changes. It does not identify clients, nor know the methods that a role may call.
package clientlist

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Role determines which methods a client may call.
type Role string

// The roles. An operator may do everything that a subscriber may, and also sees omitted nodes and why
// they are omitted.
const (
	RoleSubscriber Role = "subscriber"
	RoleOperator   Role = "operator"
)

// Grant is the permission of one listed client. It is immutable.
type Grant struct {
	SAN  certificate.SAN `flag:"san"  required:"true" placeholder:"URI or DNS name"`
	Role Role            `flag:"role" required:"true"                               enum:"subscriber,operator"`

	// Services are those of an inventory that exports Services, as namespace/name, sorted. Either part can be *, which
	// stands for any. Empty: none.
	Services []string `flag:"services" placeholder:"namespace/name or *"`
}

// FindService reports whether the client may see an exported Service, by namespace/name, and returns the namespace
// that the entry names for it; empty: any.
func (g Grant) FindService(service string) (namespace string, allowed bool) {
	inNamespace, named, _ := strings.Cut(service, "/")
	for _, pattern := range g.Services {
		switch ns, name, _ := strings.Cut(pattern, "/"); {
		case name != anyName && name != named:
		case ns == inNamespace:
			return ns, true
		case ns == anyName:
			allowed = true
		}
	}
	return "", allowed
}

// anyName in a pattern stands for any namespace or name.
const anyName = "*"

func (g Grant) equal(o Grant) bool {
	return g.SAN == o.SAN && g.Role == o.Role && slices.Equal(g.Services, o.Services)
}

// List is the client list. Reload replaces it.
type List struct {
	path string
	text []byte // the file's content in use; only accessed by Reload

	mu      sync.RWMutex
	entries map[certificate.SAN]entry
}

// entry is a grant, and a context that is canceled when the list no longer has it.
type entry struct {
	Grant

	current context.Context
	cancel  context.CancelFunc
}

// Open reads the client list. Its error names every problem of a list that is missing, empty or invalid.
func Open(path string) (*List, error) {
	l := &List{path: path}
	_, err := l.Reload()
	return l, err
}

// Grants returns all grants, sorted by SAN.
func (l *List) Grants() []Grant {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]Grant, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e.Grant)
	}
	slices.SortFunc(all, func(a, b Grant) int { return cmp.Compare(a.SAN, b.SAN) })
	return all
}

// Path returns the path of the file.
func (l *List) Path() string { return l.path }

// Find returns the grant of the client with these names. A certificate with the names of two listed clients
// has none, because choosing one would be a guess.
func (l *List) Find(names []certificate.SAN) (grant Grant, found bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, name := range names {
		e, listed := l.entries[name]
		if !listed || found && e.SAN == grant.SAN {
			continue
		}
		if found {
			return Grant{}, false
		}
		grant, found = e.Grant, true
	}
	return grant, found
}

// Watch returns a context that is done when the list no longer has exactly this grant.
func (l *List) Watch(g Grant) context.Context {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e, listed := l.entries[g.SAN]; listed && e.equal(g) {
		return e.current
	}
	outdated, cancel := context.WithCancel(context.Background())
	cancel()
	return outdated
}

// Reload reads the file if it changed. If it is invalid, the list stays as it is.
func (l *List) Reload() (changed bool, err error) {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return false, err
	}
	if l.text != nil && bytes.Equal(text, l.text) {
		return false, nil
	}
	grants, err := parseClients(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.path, err)
	}
	l.text = text
	l.replaceGrants(grants)
	return true, nil
}

// parseClients returns the grants of a list, in its order.
func parseClients(text []byte) ([]Grant, error) {
	grants, err := settings.LoadList[Grant](text, "clients")
	for i := range grants {
		slices.Sort(grants[i].Services)
		grants[i].Services = slices.Compact(grants[i].Services)
	}
	return grants, err
}

func (l *List) replaceGrants(grants []Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	previous := l.entries
	l.entries = make(map[certificate.SAN]entry, len(grants))
	for _, g := range grants {
		e, listed := previous[g.SAN]
		if !listed || !e.equal(g) {
			e = entry{Grant: g}
			e.current, e.cancel = context.WithCancel(context.Background())
		}
		l.entries[g.SAN] = e
	}
	for san, old := range previous {
		if l.entries[san].current != old.current {
			old.cancel()
		}
	}
}
