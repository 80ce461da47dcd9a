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
	maxRecords = 100_000
	maxName    = 253 // bytes of a node's name, as the feed allows
	maxQuote   = 200 // bytes of a bad record that are shown
)

// record is one element of a reading.
type record struct {
	name          string     // empty: it has none that can be read
	address       netip.Addr // canonical; zero: it has none that can be used
	ready, worker bool

	bad   string // what is wrong with it; empty: nothing
	quote string // how it begins, if it is bad
}

// parse reads a JSON array of records: {"name","private_ip","ready","worker"}, all four mandatory, in
// any order, among any other fields. An error means that nothing of the reading can be used; a
// record that cannot be used says so itself.
func parse(data []byte) ([]record, error) {
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
			return nil, broken(len(records), err)
		}
		records = append(records, judge(raw))
	}
	if _, err := in.Token(); err != nil {
		return nil, broken(len(records), err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the end of its JSON array")
	}
	return records, contradiction(records)
}

// broken says where a reading stops being JSON.
func broken(after int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ends in the midst, after %d whole records", after)
	}
	return fmt.Errorf("it is no JSON after %d whole records: %w", after, err)
}

// contradiction finds a name or an address that two records share. All that can be read
// counts, whatever else is wrong with its record: which of the two is right nobody knows.
func contradiction(records []record) error {
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

// judge reads one record.
func judge(raw json.RawMessage) record {
	var r record
	var problems []string
	add := func(problem string) {
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	fields, twice := members(raw)
	if fields == nil {
		add("it is no JSON object")
	} else {
		r.name = name(fields["name"], add)
		r.address = address(fields["private_ip"], add)
		r.ready = truth("ready", fields["ready"], add)
		r.worker = truth("worker", fields["worker"], add)
	}
	for _, field := range twice {
		add(field + " is given twice")
		if field == "name" {
			r.name = ""
		}
	}
	if len(problems) > 0 {
		r.bad, r.quote = strings.Join(problems, ", "), cut(raw)
	}
	return r
}

// members returns the fields of an object that mean something here, and which of them it has
// twice: encoding/json would take the last one, and "NAME" for "name". Nil: it is no object.
func members(raw json.RawMessage) (fields map[string]json.RawMessage, twice []string) {
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

func name(value json.RawMessage, add func(string)) string {
	text, problem := str("name", value)
	switch {
	case problem != "":
	case text == "":
		problem = "name is empty"
	case len(text) > maxName:
		problem = fmt.Sprintf("name is longer than %d bytes", maxName)
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

func address(value json.RawMessage, add func(string)) netip.Addr {
	text, problem := str("private_ip", value)
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

func truth(field string, value json.RawMessage, add func(string)) bool {
	switch string(value) {
	case "true", "false":
		return string(value) == "true"
	}
	add(unfit(field, value, "true or false"))
	return false
}

func str(field string, value json.RawMessage) (text, problem string) {
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return "", unfit(field, value, "a string")
	}
	return text, ""
}

// unfit says why a value is not what is wanted.
func unfit(field string, value json.RawMessage, want string) string {
	if value == nil {
		return field + " is absent"
	}
	return fmt.Sprintf("%s is %.40s, want %s", field, cut(value), want)
}

// cut makes one bounded line of a JSON value.
func cut(raw json.RawMessage) string {
	text := string(raw[:min(len(raw), 4*maxQuote)])
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > maxQuote {
		return strings.ToValidUTF8(text[:maxQuote], "") + "…"
	}
	return text
}
