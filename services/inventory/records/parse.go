package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// MaxBytes limits a read. It is far above the records of the largest supported cluster.
const MaxBytes = 16 << 20

const (
	maxRecords    = 100_000
	maxNameBytes  = 253 // of a node's name, as the contract allows
	maxQuoteBytes = 200 // of an invalid record that is shown in messages
)

// Check returns an error if a text cannot be used, or if one of its records is invalid.
func Check(text string) error {
	_, flaw, err := parseRecords([]byte(text), "the text")
	if err == nil && flaw != "" {
		err = errors.New(flaw)
	}
	return err
}

// parseRecords parses a JSON array of records: {"name","private_ip","ready","worker"}, all four
// mandatory, in any order; other fields are ignored. An error means that the text is not used at all.
// An invalid record is not an error, but a flaw: its node is invalid, and has a name and an address only if those are
// valid. The origin describes the text in messages.
func parseRecords(data []byte, origin string) (nodes []roster.Node, flaw string, err error) {
	if len(data) > MaxBytes {
		return nil, "", fmt.Errorf("larger than %d MiB", MaxBytes>>20)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	first, err := in.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil, "", errors.New("empty; want a JSON array of records, [] if there are no nodes")
	case err != nil || first != json.Delim('['):
		return nil, "", errors.New("not a JSON array of records")
	}
	invalid := 0
	for in.More() {
		if len(nodes) == maxRecords {
			return nil, "", fmt.Errorf("more than %d records", maxRecords)
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, "", syntaxError(len(nodes), err)
		}
		node := parseRecord(raw, origin)
		if node.Invalid != "" {
			invalid++
		}
		if node.Invalid != "" && flaw == "" {
			subject := truncate(raw)
			if node.Name != "" {
				subject = fmt.Sprintf("%.80q", node.Name)
			}
			flaw = subject + ": " + node.Invalid
		}
		nodes = append(nodes, node)
	}
	if flaw != "" {
		flaw = fmt.Sprintf("invalid records of %s: %d of %d, the first: %s", origin, invalid, len(nodes), flaw)
	}
	if _, err := in.Token(); err != nil {
		return nil, "", syntaxError(len(nodes), err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, "", errors.New("trailing data after JSON array")
	}
	return nodes, flaw, findDuplicate(nodes)
}

// syntaxError states after how many records the JSON ends or becomes invalid.
func syntaxError(records int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("truncated after %s", display.Count(records, "record", "records"))
	}
	return fmt.Errorf("invalid JSON after %s: %w", display.Count(records, "record", "records"), err)
}

// findDuplicate returns an error if two records have the same name or address, because either of
// them may be the correct one. It also compares the valid fields of invalid records.
func findDuplicate(nodes []roster.Node) error {
	names := make(map[string]struct{}, len(nodes))
	nameOf := make(map[netip.Addr]string, len(nodes))
	for _, node := range nodes {
		if _, ok := names[node.Name]; ok && node.Name != "" {
			return fmt.Errorf("two records have the name %.80q", node.Name)
		}
		names[node.Name] = struct{}{}
		for _, address := range node.InternalIPs {
			if other, ok := nameOf[address]; ok {
				return fmt.Errorf("the records of %.80q and %.80q have the same address %s", other, node.Name, address)
			}
			nameOf[address] = node.Name
		}
	}
	return nil
}

// parseRecord returns the node of a record. Decoding into a node would not tell a missing field from an empty one.
func parseRecord(raw json.RawMessage, origin string) roster.Node {
	var fields struct {
		Name      json.RawMessage `json:"name"`
		PrivateIP json.RawMessage `json:"private_ip"`
		Ready     json.RawMessage `json:"ready"`
		Worker    json.RawMessage `json:"worker"`
	}
	node := roster.Node{State: roster.NotReady}
	// Unlike this one, encoding/json uses the last of duplicate fields, and accepts "NAME" for "name".
	duplicates, err := kjson.UnmarshalStrict(raw, &fields, kjson.DisallowDuplicateFields)
	var problems []string
	if err != nil || raw[0] != '{' {
		problems = []string{"not a JSON object"}
	} else {
		name, problemName := parseName(fields.Name)
		address, problemAddress := parseAddress(fields.PrivateIP)
		ready, problemReady := parseField[bool](fields.Ready, "ready", "true or false")
		worker, problemWorker := parseField[bool](fields.Worker, "worker", "true or false")
		problems = []string{problemName, problemAddress, problemReady, problemWorker}
		node.Name = name
		if address.IsValid() {
			node.InternalIPs = []netip.Addr{address}
		}
		if ready {
			node.State = roster.Ready
		}
		if !worker {
			node.Excluded, node.ExcludedBy = roster.ControlPlane, "its record has worker false"
		}
		node.StateReason = fmt.Sprintf("its record in %s has ready %t", origin, ready)
	}
	for _, duplicate := range duplicates {
		problems = append(problems, duplicate.Error())
		if field, ok := errors.AsType[kjson.FieldError](duplicate); ok && field.FieldPath() == "name" {
			node.Name = ""
		}
	}
	problems = slices.DeleteFunc(problems, func(problem string) bool { return problem == "" })
	if len(problems) == 0 {
		return node
	}
	return roster.Node{
		Name: node.Name, InternalIPs: node.InternalIPs, Invalid: strings.Join(problems, ", "),
		StateReason: fmt.Sprintf("its record in %s is invalid: %s", origin, truncate(raw)),
	}
}

func parseName(raw json.RawMessage) (name, problem string) {
	text, problem := parseField[string](raw, "name", "a string")
	switch {
	case problem != "":
		return "", problem
	case text == "":
		return "", "name is empty"
	case len(text) > maxNameBytes:
		return "", fmt.Sprintf("name is longer than %d bytes", maxNameBytes)
	case strings.ContainsRune(text, utf8.RuneError): // the decoder also replaces invalid UTF-8 with it
		return "", "name is not valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", "name has control characters"
	}
	return text, ""
}

func parseAddress(raw json.RawMessage) (address netip.Addr, problem string) {
	text, problem := parseField[string](raw, "private_ip", "a string")
	if problem != "" {
		return netip.Addr{}, problem
	}
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Sprintf("private_ip is %.60q, want an IP address", text)
	case a.Zone() != "":
		return netip.Addr{}, fmt.Sprintf("private_ip is %.60q, want an address without a zone", text)
	case !a.IsGlobalUnicast(): // includes private addresses
		return netip.Addr{}, fmt.Sprintf("private_ip is %s, want an address that other hosts can reach", a)
	}
	return a, ""
}

// parseField decodes a field, or returns why it cannot be used.
func parseField[T any](raw json.RawMessage, name, want string) (value T, problem string) {
	var decoded *T
	switch {
	case raw == nil:
		return value, name + " is missing"
	case json.Unmarshal(raw, &decoded) != nil || decoded == nil:
		return value, fmt.Sprintf("%s is %.40s, want %s", name, truncate(raw), want)
	}
	return *decoded, ""
}

// truncate returns the start of a JSON value as one line.
func truncate(raw json.RawMessage) string {
	text := string(raw[:min(len(raw), 4*maxQuoteBytes)])
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > maxQuoteBytes {
		return strings.ToValidUTF8(text[:maxQuoteBytes], "") + "…"
	}
	return text
}
