package link

import (
	"context"
	"os"
	"slices"
	"strings"

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

// Grant is the permission of one client of the list, ALLOWED_CLIENTS_FILE. A client without an entry has none.
type Grant struct {
	SAN  SAN  `flag:"san"  required:"true" placeholder:"URI or DNS name"`
	Role Role `flag:"role" required:"true"                               enum:"subscriber,operator"`

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

// ReadClients returns the grants of a client list, in its order. Its error names every problem of a list that is missing,
// empty or invalid.
func ReadClients(path string) ([]Grant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseClients(text)
}

func parseClients(text []byte) ([]Grant, error) {
	grants, err := settings.LoadList[Grant](text, "clients")
	for i := range grants {
		slices.Sort(grants[i].Services)
		grants[i].Services = slices.Compact(grants[i].Services)
	}
	return grants, err
}

// findGrant returns the grant of the client with these names. A certificate with the names of two listed clients
// has none, because choosing one would be a guess.
func findGrant(list map[SAN]Grant, names []SAN) (grant Grant, listed bool) {
	for _, name := range names {
		g, found := list[name]
		if !found || listed && g.SAN == grant.SAN {
			continue
		}
		if listed {
			return Grant{}, false
		}
		grant, listed = g, true
	}
	return grant, listed
}

type grantKey struct{}

// Identify returns the caller's grant. Its error is for the caller.
func Identify(ctx context.Context) (Grant, error) {
	if g, ok := ctx.Value(grantKey{}).(Grant); ok {
		return g, nil
	}
	return Grant{}, errDenied
}
