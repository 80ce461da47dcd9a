package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxBytes bounds a reading, far above what the feed is made for.
const MaxBytes = 16 << 20

const (
	maxRecords    = 100_000
	maxNameBytes  = 253 // bytes of a node's name, as the feed allows
	maxQuoteBytes = 200 // bytes of a bad record that are shown
)

// record is one element of a reading.
type record struct {
	name          string     // empty: it has none that can be read
	address       netip.Addr // canonical; zero: it has none that can be used
	ready, worker bool

	problem string // what is wrong with it; empty: nothing
	quote   string // how it begins, if it is bad
}

// parseRecords reads a JSON array of records: {"name","private_ip","ready","worker"}, all four mandatory, in
// any order, among any other fields. An error means that nothing of the reading can be used; a
// record that cannot be used says so itself.
func parseRecords(data []byte) ([]record, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("it is larger than %d MiB", MaxBytes>>20)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	first, err := in.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty: want a JSON array, which is [] where there are no nodes")
	case err != nil || first != json.Delim('['):
		return nil, errors.New("it is no JSON array of records")
	}
	records := []record{}
	for in.More() {
		if len(records) == maxRecords {
			return nil, fmt.Errorf("it has more than %d records", maxRecords)
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
		return nil, errors.New("something follows the end of its JSON array")
	}
	return records, findDuplicate(records)
}

// syntaxError says where a reading stops being JSON.
func syntaxError(after int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ends in the midst, after %d whole records", after)
	}
	return fmt.Errorf("it is no JSON after %d whole records: %w", after, err)
}

// findDuplicate finds a name or an address that two records share. All that can be read
// counts, whatever else is wrong with its record: which of the two is right nobody knows.
func findDuplicate(records []record) error {
	names := make(map[string]struct{}, len(records))
	bearers := make(map[netip.Addr]int, len(records))
	for i, r := range records {
		if _, ok := names[r.name]; ok && r.name != "" {
			return fmt.Errorf("two records have the name %.80q", r.name)
		}
		names[r.name] = struct{}{}
		if j, ok := bearers[r.address]; ok && r.address.IsValid() {
			return fmt.Errorf("the records of %.80q and %.80q have the same address %s", records[j].name, r.name, r.address)
		}
		bearers[r.address] = i
	}
	return nil
}

// parseRecord reads one record.
func parseRecord(raw json.RawMessage) record {
	var r record
	var problems []string
	add := func(problem string) {
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	fields, twice := parseFields(raw)
	if fields == nil {
		add("it is no JSON object")
	} else {
		r.name = parseName(fields["name"], add)
		r.address = parseAddress(fields["private_ip"], add)
		r.ready = parseBool("ready", fields["ready"], add)
		r.worker = parseBool("worker", fields["worker"], add)
	}
	for _, field := range twice {
		add(field + " is given twice")
		if field == "name" {
			r.name = ""
		}
	}
	if len(problems) > 0 {
		r.problem, r.quote = strings.Join(problems, ", "), truncate(raw)
	}
	return r
}

// parseFields returns the fields of an object that mean something here, and which of them it has
// twice: encoding/json would take the last one, and "NAME" for "name". Nil: it is no object.
func parseFields(raw json.RawMessage) (fields map[string]json.RawMessage, twice []string) {
	in := json.NewDecoder(bytes.NewReader(raw))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return nil, nil
	}
	fields = map[string]json.RawMessage{}
	for in.More() {
		key, err := in.Token()
		var value json.RawMessage
		if err != nil || in.Decode(&value) != nil {
			return nil, nil // cannot be: what is in raw has been scanned before
		}
		switch field, _ := key.(string); field {
		case "name", "private_ip", "ready", "worker":
			if _, ok := fields[field]; ok {
				twice = append(twice, field)
			}
			fields[field] = value
		}
	}
	return fields, twice
}

func parseName(value json.RawMessage, add func(string)) string {
	text, problem := parseString("name", value)
	switch {
	case problem != "":
	case text == "":
		problem = "name is empty"
	case len(text) > maxNameBytes:
		problem = fmt.Sprintf("name is longer than %d bytes", maxNameBytes)
	case strings.ContainsRune(text, utf8.RuneError): // also what the decoder made of bytes that are no UTF-8
		problem = "name is no UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		problem = "name has control characters"
	default:
		return text
	}
	add(problem)
	return ""
}

func parseAddress(value json.RawMessage, add func(string)) netip.Addr {
	text, problem := parseString("private_ip", value)
	if problem != "" {
		add(problem)
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	switch {
	case err != nil:
		problem = fmt.Sprintf("private_ip is %.60q, which is no IP address", text)
	case a.Zone() != "":
		problem = fmt.Sprintf("private_ip is %.60q, which has a zone", text)
	case !a.IsGlobalUnicast(): // private addresses are, in this sense
		problem = fmt.Sprintf("private_ip is %s, which no node can be reached at from elsewhere", a)
	default:
		return a
	}
	add(problem)
	return netip.Addr{}
}

func parseBool(field string, value json.RawMessage, add func(string)) bool {
	switch string(value) {
	case "true", "false":
		return string(value) == "true"
	}
	add(typeError(field, value, "true or false"))
	return false
}

func parseString(field string, value json.RawMessage) (text, problem string) {
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return "", typeError(field, value, "a string")
	}
	return text, ""
}

// typeError says why a value is not what is wanted.
func typeError(field string, value json.RawMessage, want string) string {
	if value == nil {
		return field + " is absent"
	}
	return fmt.Sprintf("%s is %.40s, want %s", field, truncate(value), want)
}

// truncate makes one bounded line of a JSON value.
func truncate(raw json.RawMessage) string {
	text := string(raw[:min(len(raw), 4*maxQuoteBytes)])
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > maxQuoteBytes {
		return strings.ToValidUTF8(text[:maxQuoteBytes], "") + "…"
	}
	return text
}
