package roster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// identity is what a server can be recognized by, the strongest first.
type identity uint8

const (
	byProviderID identity = iota + 1
	bySystemUUID
	byName
)

// serverMatch is the server that a node runs on, or why there is none.
type serverMatch struct {
	by       identity // 0: no identity means one server
	server   *Server  // nil: none, or its data is invalid
	id       string   // of the server
	omission Omission
}

// matchServer finds the server of a node: by its provider ID, else by its system UUID, else by its name. A
// weaker identity never overrides a stronger one: a provider ID of a server that does not exist is not
// repaired by a name, nor is one in an unknown form. Those of other programs, such as k3s://, mean nothing.
func (c *cloudIndex) matchServer(n *Node) serverMatch {
	datacenter, id, isOurs := parseProviderID(n.ProviderID)
	hasID := id != ""
	withUUID := c.serversWithUUID(n.SystemUUID)
	switch {
	case hasID && len(withUUID) > 0 && !slices.Contains(withUUID, id):
		return ambiguous("its system UUID is that of server %s, and its provider ID is not", withUUID[0])
	case hasID && !c.exists(id):
		return notFound("no server has the ID %s of its provider ID%s", id, c.sameNameHint(n.Name))
	case hasID && datacenter != "" && c.byID[id] != nil && c.byID[id].Datacenter != datacenter:
		return ambiguous("its server is in datacenter %s, unlike in its provider ID", c.byID[id].Datacenter)
	case hasID:
		return c.serverWithID(byProviderID, id)
	case len(withUUID) == 1:
		return c.serverWithID(bySystemUUID, withUUID[0])
	case len(withUUID) > 1:
		return ambiguous("its system UUID is that of server %s, and reordered of another one", withUUID[0])
	case isOurs:
		return notFound("its provider ID has an unknown form, want ionos://SERVER%s", c.sameNameHint(n.Name))
	}
	switch named := c.byName[n.Name]; len(named) {
	case 0:
		return notFound("no server has its provider ID, its system UUID or its name")
	case 1:
		return c.serverWithID(byName, named[0].ID)
	default:
		return ambiguous("%d servers have its name, and none its provider ID or system UUID", len(named))
	}
}

func (c *cloudIndex) serverWithID(by identity, id string) serverMatch {
	if s := c.byID[id]; s != nil {
		return serverMatch{by: by, server: s, id: id}
	}
	return serverMatch{by: by, id: id, omission: Omission{
		InvalidRecord, fmt.Sprintf("server %s has invalid data: %s", id, truncate(c.invalid[id])),
	}}
}

func ambiguous(format string, args ...any) serverMatch {
	return serverMatch{omission: Omission{AmbiguousServer, fmt.Sprintf(format, args...)}}
}

func notFound(format string, args ...any) serverMatch {
	return serverMatch{omission: Omission{NotFoundInIONOS, fmt.Sprintf(format, args...)}}
}

// describe says which identity decided.
func (m serverMatch) describe(n *Node) string {
	switch {
	case m.omission.Reason != 0:
		return m.omission.Message
	case m.by == byProviderID:
		return "by its provider ID"
	case m.by == byName:
		return "by its name; no server has its provider ID or system UUID"
	case strings.ToLower(n.SystemUUID) != m.id:
		return "by its system UUID, in the other byte order"
	}
	return "by its system UUID"
}

func (c *cloudIndex) sameNameHint(name string) string {
	if len(c.byName[name]) > 0 {
		return ", but one has its name"
	}
	return ""
}

// parseProviderID reads both forms in use, ionos://<server> and ionos:///<datacenter>/<server>, in lower case. One in
// another form is ours too, and names no server.
func parseProviderID(s string) (datacenter, server string, isOurs bool) {
	rest, isOurs := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "ionos:")
	server, isKnown := strings.CutPrefix(rest, "//")
	if path, isLong := strings.CutPrefix(server, "/"); isLong {
		datacenter, server, _ = strings.Cut(path, "/")
		isKnown = isKnown && isUUID(datacenter)
	}
	if !isOurs || !isKnown || !isUUID(server) {
		return "", "", isOurs
	}
	return datacenter, server, true
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isUUID reports whether s is a UUID in its usual form, in lower case.
func isUUID(s string) bool { return uuidPattern.MatchString(s) }

// swapUUID reverses the bytes of the first three fields.
func swapUUID(u string) string {
	return u[6:8] + u[4:6] + u[2:4] + u[0:2] + "-" + u[11:13] + u[9:11] + "-" + u[16:18] + u[14:16] + u[18:]
}
