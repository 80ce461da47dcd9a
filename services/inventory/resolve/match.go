package resolve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slicefeed/slicefeed/services/inventory/source"
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
	by       identity       // the identity that decided, either way
	server   *source.Server // nil: none, or its data is invalid
	id       string         // of the server
	omission Omission
}

// identities are the servers that each identity of a node means.
type identities struct {
	datacenter, providerID string // of the provider ID, if it is valid
	hasProviderID          bool
	withUUID               []string
	withName               []*source.Server
}

// matchServer finds the server of a node: by its provider ID, else by its system UUID, else by its name. A
// weaker identity never overrides a stronger one: a provider ID of a server that does not exist is not
// repaired by a name.
func (c *cloudIndex) matchServer(n *source.Candidate, trace *source.Trace) serverMatch {
	ids := identities{withUUID: c.serversWithUUID(n.SystemUUID), withName: c.byName[n.Name]}
	ids.datacenter, ids.providerID, ids.hasProviderID = parseProviderID(n.ProviderID)
	found := c.chooseServer(n, ids)
	if trace != nil {
		c.traceIdentities(trace, n, ids, found)
	}
	return found
}

func (c *cloudIndex) chooseServer(n *source.Candidate, ids identities) serverMatch {
	id := ids.providerID
	switch {
	case ids.hasProviderID && len(ids.withUUID) > 0 && !slices.Contains(ids.withUUID, id):
		return ambiguous(
			bySystemUUID,
			"The provider ID %q and the system UUID %q name different servers; the UUID is that of server %s. Find out which one this node runs on, and correct its provider ID.",
			truncate(n.ProviderID),
			truncate(n.SystemUUID),
			ids.withUUID[0],
		)
	case ids.hasProviderID && !c.exists(id):
		return notFound(
			byProviderID,
			"No server has the ID %s from the provider ID%s. Check that IONOS_DATACENTER_ID names its datacenter, or delete the Node if the server is gone.",
			id,
			sameNameHint(ids.withName),
		)
	case ids.hasProviderID && ids.datacenter != "" && c.byID[id] != nil && c.byID[id].Datacenter != ids.datacenter:
		return ambiguous(
			byProviderID,
			"The provider ID %q names the datacenter %s, but server %s is in %s. Correct the Node's provider ID.",
			truncate(n.ProviderID),
			ids.datacenter,
			id,
			c.byID[id].Datacenter,
		)
	case ids.hasProviderID:
		return c.serverWithID(byProviderID, id)
	case len(ids.withUUID) == 1:
		return c.serverWithID(bySystemUUID, ids.withUUID[0])
	case len(ids.withUUID) > 1:
		return ambiguous(
			bySystemUUID,
			"The system UUID %q is that of server %s, and in the other byte order that of server %s. Set the Node's provider ID to ionos://<server ID>.",
			truncate(n.SystemUUID),
			ids.withUUID[0],
			ids.withUUID[1],
		)
	}
	switch named := ids.withName; len(named) {
	case 0:
		return notFound(
			byName,
			"No server has the name %q, and %s. Check IONOS_DATACENTER_ID, or set the Node's provider ID to ionos://<server ID>.",
			truncate(n.Name),
			describeUnknownIDs(n),
		)
	case 1:
		return c.serverWithID(byName, named[0].ID)
	default:
		return ambiguous(
			byName,
			"%d servers have the name %q, among them %s and %s, and %s. Set the Node's provider ID to ionos://<server ID>.",
			len(named),
			truncate(n.Name),
			named[0].ID,
			named[1].ID,
			describeUnknownIDs(n),
		)
	}
}

func (c *cloudIndex) serverWithID(by identity, id string) serverMatch {
	if s := c.byID[id]; s != nil {
		return serverMatch{by: by, server: s, id: id}
	}
	return serverMatch{by: by, id: id, omission: Omission{source.InvalidRecord, fmt.Sprintf(
		"Server %s has invalid data in the cloud (%s). It is read again with each listing.", id, truncate(c.invalid[id]))}}
}

func ambiguous(by identity, format string, args ...any) serverMatch {
	return serverMatch{by: by, omission: Omission{source.AmbiguousServer, fmt.Sprintf(format, args...)}}
}

func notFound(by identity, format string, args ...any) serverMatch {
	return serverMatch{by: by, omission: Omission{source.NotFoundInIONOS, fmt.Sprintf(format, args...)}}
}

// describeUnknownIDs describes why neither ID of a node identifies a server, when none does.
func describeUnknownIDs(n *source.Candidate) string {
	switch {
	case n.ProviderID == "" && n.SystemUUID == "":
		return "the node has neither a provider ID nor a system UUID"
	case n.ProviderID == "":
		return fmt.Sprintf("the node has no provider ID, and its system UUID %q matches no server", truncate(n.SystemUUID))
	case n.SystemUUID == "":
		return fmt.Sprintf("the provider ID %q matches no server, and the node has no system UUID", truncate(n.ProviderID))
	}
	return fmt.Sprintf("neither the provider ID %q nor the system UUID %q matches a server", truncate(n.ProviderID), truncate(n.SystemUUID))
}

func sameNameHint(named []*source.Server) string {
	if len(named) == 1 {
		return fmt.Sprintf(" (the one with the node's name is %s)", named[0].ID)
	}
	return ""
}

// traceIdentities records what each identity of the node means, and which of them decided.
func (c *cloudIndex) traceIdentities(trace *source.Trace, n *source.Candidate, ids identities, found serverMatch) {
	add := func(by identity, question string, agrees bool, detail string) {
		result := source.Skipped
		switch {
		case by == found.by && found.omission.Reason != 0:
			result = source.Failed
		case by == found.by, by < byName && agrees:
			result = source.Passed
		}
		trace.Add(result, source.StageMatch, question, "%s", detail)
	}
	add(byProviderID, "Which server, by its provider ID?", ids.hasProviderID && c.exists(ids.providerID), c.describeProviderID(n, ids))
	add(bySystemUUID, "Which server, by its system UUID?", slices.Contains(ids.withUUID, found.id), c.describeUUID(n, ids))
	detail := describeServersWithName(n, ids.withName)
	if found.by != byName {
		detail += "; names are used only if no ID identifies a server"
	}
	add(byName, "Which server, by its name?", false, detail)
}

func (c *cloudIndex) describeProviderID(n *source.Candidate, ids identities) string {
	switch {
	case n.ProviderID == "":
		return "the node has none"
	case !ids.hasProviderID:
		return fmt.Sprintf("%q does not name a server of this cloud", truncate(n.ProviderID))
	case !c.exists(ids.providerID):
		return fmt.Sprintf("%q: no server has this ID", truncate(n.ProviderID))
	}
	text := fmt.Sprintf("%q is %s", truncate(n.ProviderID), c.describeServer(ids.providerID))
	if s := c.byID[ids.providerID]; s != nil && ids.datacenter != "" && s.Datacenter != ids.datacenter {
		text += fmt.Sprintf(", which is in the datacenter %s, not %s", s.Datacenter, ids.datacenter)
	}
	return text
}

func (c *cloudIndex) describeUUID(n *source.Candidate, ids identities) string {
	uuid := strings.ToLower(n.SystemUUID)
	if uuid == "" {
		return "the node has none"
	}
	if !isUUID(uuid) {
		return fmt.Sprintf("%q is not a UUID", truncate(n.SystemUUID))
	}
	text := fmt.Sprintf("%s is %s", uuid, c.describeServer(uuid))
	if swapped := swapUUID(uuid); swapped != uuid {
		text += fmt.Sprintf("; in the other byte order (%s) it is %s", swapped, c.describeServer(swapped))
	}
	if ids.hasProviderID && len(ids.withUUID) > 0 && !slices.Contains(ids.withUUID, ids.providerID) {
		text += "; this contradicts the provider ID"
	}
	return text
}

func describeServersWithName(n *source.Candidate, named []*source.Server) string {
	switch len(named) {
	case 0:
		return fmt.Sprintf("no server has the name %q", truncate(n.Name))
	case 1:
		return fmt.Sprintf("server %s has the name %q", named[0].ID, truncate(n.Name))
	}
	return fmt.Sprintf("%d servers have the name %q, among them %s and %s", len(named), truncate(n.Name), named[0].ID, named[1].ID)
}

// describeServer describes which server has an ID.
func (c *cloudIndex) describeServer(id string) string {
	if problem, invalid := c.invalid[id]; invalid {
		return fmt.Sprintf("server %s, which has invalid data (%s)", id, truncate(problem))
	}
	if s := c.byID[id]; s != nil {
		return fmt.Sprintf("server %s (%q)", id, truncate(s.Name))
	}
	return "not a known server"
}
