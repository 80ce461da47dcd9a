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

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// MaxBytes limits a read. It is far above the records of the largest supported cluster.
const MaxBytes = 16 << 20

const (
	maxRecords    = 100_000
	maxNameBytes  = 253 // of a node's name, as the contract allows
	maxQuoteBytes = 200 // of an invalid record that is shown in messages
)

// record is one element of the array.
type record struct {
	name          string     // empty: missing or invalid
	address       netip.Addr // canonical; zero: missing or invalid
	ready, worker bool

	problem string // why the record is invalid; empty: it is valid
	quote   string // the start of an invalid record
}

// Check returns an error if a text cannot be used, or if one of its records is invalid.
func Check(text string) error {
	records, err := parseRecords([]byte(text))
	if at := slices.IndexFunc(records, func(r record) bool { return r.problem != "" }); err == nil && at >= 0 {
		return fmt.Errorf("invalid record: %s", describeProblem(records[at]))
	}
	return err
}

// parseRecords parses a JSON array of records: {"name","private_ip","ready","worker"}, all four
// mandatory, in any order; other fields are ignored. An error means that the text is not used at all.
// An invalid record is not an error: its field problem is set.
func parseRecords(data []byte) ([]record, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("larger than %d MiB", MaxBytes>>20)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	first, err := in.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("empty; want a JSON array of records, [] if there are no nodes")
	case err != nil || first != json.Delim('['):
		return nil, errors.New("not a JSON array of records")
	}
	records := []record{}
	for in.More() {
		if len(records) == maxRecords {
			return nil, fmt.Errorf("more than %d records", maxRecords)
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, syntaxError(len(records), err)
		}
		records = append(records, parseRecord(raw))
	}
	if _, err := in.Token(); err != nil {
		return nil, syntaxError(len(records), err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing data after JSON array")
	}
	return records, findDuplicate(records)
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
func findDuplicate(records []record) error {
	names := make(map[string]struct{}, len(records))
	byAddress := make(map[netip.Addr]int, len(records))
	for i, r := range records {
		if _, ok := names[r.name]; ok && r.name != "" {
			return fmt.Errorf("two records have the name %.80q", r.name)
		}
		names[r.name] = struct{}{}
		if j, ok := byAddress[r.address]; ok && r.address.IsValid() {
			return fmt.Errorf("the records of %.80q and %.80q have the same address %s", records[j].name, r.name, r.address)
		}
		byAddress[r.address] = i
	}
	return nil
}

func parseRecord(raw json.RawMessage) record {
	var r record
	var problems [4]string
	fields, duplicates := parseFields(raw)
	if fields == nil {
		problems[0] = "not a JSON object"
	} else {
		r.name, problems[0] = parseName(fields)
		r.address, problems[1] = parseAddress(fields)
		r.ready, problems[2] = parseField[bool](fields, "ready", "true or false")
		r.worker, problems[3] = parseField[bool](fields, "worker", "true or false")
	}
	all := slices.DeleteFunc(problems[:], func(problem string) bool { return problem == "" })
	for _, field := range duplicates {
		all = append(all, "duplicate field "+field)
		if field == "name" {
			r.name = ""
		}
	}
	if len(all) > 0 {
		r.problem, r.quote = strings.Join(all, ", "), truncate(raw)
	}
	return r
}

// parseFields returns the four fields of an object, and the names of those that it has more than
// once. Decoding into a struct would silently use the last duplicate, and accept "NAME" for "name".
// If raw is not an object, fields is nil.
func parseFields(raw json.RawMessage) (fields map[string]json.RawMessage, duplicates []string) {
	in := json.NewDecoder(bytes.NewReader(raw))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return nil, nil
	}
	fields = map[string]json.RawMessage{}
	for in.More() {
		key, err := in.Token()
		var value json.RawMessage
		if err != nil || in.Decode(&value) != nil {
			return nil, nil // unreachable: raw is valid JSON
		}
		switch field, _ := key.(string); field {
		case "name", "private_ip", "ready", "worker":
			if _, ok := fields[field]; ok {
				duplicates = append(duplicates, field)
			}
			fields[field] = value
		}
	}
	return fields, duplicates
}

func parseName(fields map[string]json.RawMessage) (name, problem string) {
	text, problem := parseField[string](fields, "name", "a string")
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

func parseAddress(fields map[string]json.RawMessage) (address netip.Addr, problem string) {
	text, problem := parseField[string](fields, "private_ip", "a string")
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
func parseField[T any](fields map[string]json.RawMessage, name, want string) (value T, problem string) {
	raw, ok := fields[name]
	var decoded *T
	switch {
	case !ok:
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
