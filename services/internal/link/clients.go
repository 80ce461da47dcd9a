package link

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
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

func (g Grant) same(o Grant) bool {
	return g.SAN == o.SAN && g.Role == o.Role && slices.Equal(g.View.Labels, o.View.Labels) &&
		g.View.NodeSelector.String() == o.View.NodeSelector.String()
}

// Clients is the list of those who may call, from ALLOWED_CLIENTS_FILE. It is kept fresh by
// the server that it belongs to.
type Clients struct {
	path string
	text []byte // of what is in use; read and written by loading only

	strangers *account // of all who are not on the list

	mu      sync.RWMutex
	entries map[SAN]*entry
}

type entry struct {
	grant   Grant
	changed chan struct{} // closed when the grant is no longer as it is here
	account *account      // the client's, however its grant changes
}

// OpenClients reads the list. A list that is missing, empty or wrong is an error that names
// every problem.
func OpenClients(path string) (*Clients, error) {
	c := &Clients{path: path, strangers: newAccount()}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// Lookup finds the grant of a peer by its certificates, of which the first counts. A
// certificate with names of two clients of the list gets none: it would be a guess.
func (c *Clients) Lookup(peer []*x509.Certificate) (Grant, bool) {
	if e := c.find(peer); e != nil {
		return e.grant, true
	}
	return Grant{}, false
}

// account is what the peer's limits are counted by. There are as many as the list is long,
// and one more: whoever can have certificates signed could call by any number of names.
func (c *Clients) account(peer []*x509.Certificate) *account {
	if e := c.find(peer); e != nil {
		return e.account
	}
	return c.strangers
}

func (c *Clients) find(peer []*x509.Certificate) *entry {
	if len(peer) == 0 {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found *entry
	for _, name := range names(peer[0]) {
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

// Follow returns a channel that is closed as soon as the list no longer gives just this grant.
func (c *Clients) Follow(g Grant) <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.entries[g.SAN]; e != nil && e.grant.same(g) {
		return e.changed
	}
	over := make(chan struct{})
	close(over)
	return over
}

func (c *Clients) load() (bool, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return false, &fileError{"clients", c.path, reason(err)}
	}
	if c.text != nil && bytes.Equal(text, c.text) {
		return false, nil
	}
	grants, err := parseClients(text)
	if err != nil {
		return false, &fileError{"clients", c.path, err}
	}
	c.text = text
	c.replace(grants)
	return true, nil
}

func (c *Clients) replace(grants []Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[SAN]*entry, len(grants))
	for _, g := range grants {
		used := newAccount()
		if old := c.entries[g.SAN]; old != nil {
			if old.grant.same(g) {
				next[g.SAN] = old
				continue
			}
			used = old.account
		}
		next[g.SAN] = &entry{grant: g, changed: make(chan struct{}), account: used}
	}
	for san, old := range c.entries {
		if next[san] != old {
			close(old.changed)
		}
	}
	c.entries = next
}

// parseClients reads the list strictly: an unknown key may be a restriction with a typing
// mistake in it. The order is that of the file.
func parseClients(text []byte) ([]Grant, error) {
	var list struct {
		Clients []struct {
			SAN  string `yaml:"san"`
			Role Role   `yaml:"role"`
			View struct {
				NodeSelector string   `yaml:"nodeSelector"`
				Labels       []string `yaml:"labels"`
			} `yaml:"view"`
		} `yaml:"clients"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var problems []error
	err := d.Decode(&list)
	var mistakes *yaml.TypeError
	switch {
	case errors.As(err, &mistakes): // the rest has been decoded, so that its problems can be told too
		for _, m := range mistakes.Errors {
			problems = append(problems, errors.New(m))
		}
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	default:
		if err == nil && !errors.Is(d.Decode(new(yaml.Node)), io.EOF) {
			problems = append(problems, errors.New("holds more than one YAML document"))
		}
	}
	if len(list.Clients) == 0 && len(problems) == 0 {
		return nil, errors.New(`lists no client, so nobody could call; want "clients:" with a san and a role each`)
	}

	var grants []Grant
	seen := map[SAN]int{}
	for n, c := range list.Clients {
		at := fmt.Sprintf("client %d (%q)", n+1, c.SAN)
		g := Grant{Role: c.Role, View: View{NodeSelector: labels.Everything()}}
		if g.SAN, err = ParseSAN(c.SAN); err != nil {
			problems = append(problems, fmt.Errorf("%s: san: %w", at, err))
		} else if first, twice := seen[g.SAN]; twice {
			problems = append(problems, fmt.Errorf("%s: this san is listed already, as client %d", at, first))
		} else {
			seen[g.SAN] = n + 1
		}
		if c.Role != RoleSubscriber && c.Role != RoleOperator {
			problems = append(problems, fmt.Errorf("%s: role is %q, want subscriber or operator", at, c.Role))
		}
		if s, err := labels.Parse(c.View.NodeSelector); err != nil {
			problems = append(problems, fmt.Errorf("%s: view.nodeSelector %q: %w", at, c.View.NodeSelector, err))
		} else {
			g.View.NodeSelector = s
		}
		for _, key := range c.View.Labels {
			if len(validation.IsQualifiedName(key)) > 0 {
				problems = append(problems, fmt.Errorf("%s: view.labels: %q is no label key", at, key))
			}
		}
		g.View.Labels = slices.Compact(slices.Sorted(slices.Values(c.View.Labels)))
		if len(g.View.Labels) > maxViewLabels { // or a node could have more than the contract allows
			problems = append(problems, fmt.Errorf("%s: view.labels has %d keys, want at most %d", at, len(g.View.Labels), maxViewLabels))
		}
		grants = append(grants, g)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return grants, nil
}
