package records

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseRecord(t *testing.T) {
	for _, tc := range []struct{ name, text, bad string }{
		{"as existing inventories print it", recordA, ""},
		{"fields in another order and white space", "{ \"worker\" : true,\n\"ready\":false, \"private_ip\":\"10.0.0.11\",\t\"name\":\"a\" }", ""},
		{"unknown fields are ignored", `{"zone":{"name":["x",1e400]},"name":"a","private_ip":"10.0.0.11","ready":true,"worker":true,"Name":5}`, ""},
		{"IPv6 in long form", recordJSON("a", "fd00:0:0::0001", true, true), ""},
		{"a name of 253 bytes", recordJSON(strings.Repeat("x", 253), "10.0.0.11", true, true), ""},

		{"null", `null`, "it is no JSON object"},
		{"a string", `"a"`, "it is no JSON object"},
		{"an array", `["a","10.0.0.11",true,true]`, "it is no JSON object"},
		{"an empty object", `{}`, "name is absent, private_ip is absent, ready is absent, worker is absent"},
		{"all null", `{"name":null,"private_ip":null,"ready":null,"worker":null}`, "name is null, want a string, private_ip is null, want a string, ready is null, want true or false, worker is null, want true or false"},
		{"all of another type", `{"name":1,"private_ip":["10.0.0.11"],"ready":"true","worker":1}`, `name is 1, want a string, private_ip is ["10.0.0.11"], want a string, ready is "true", want true or false, worker is 1, want true or false`},
		{"names of fields in capitals", `{"NAME":"a","Private_IP":"10.0.0.11","READY":true,"Worker":true}`, "name is absent, private_ip is absent, ready is absent, worker is absent"},
		{"a field twice", `{"name":"a","private_ip":"10.0.0.11","ready":true,"ready":true,"worker":true}`, "ready is given twice"},
		{"a name twice", `{"name":"a","name":"b","private_ip":"10.0.0.11","ready":true,"worker":true}`, "name is given twice"},

		{"an empty name", recordJSON("", "10.0.0.11", true, true), "name is empty"},
		{"a name of 254 bytes", recordJSON(strings.Repeat("x", 254), "10.0.0.11", true, true), "name is longer than 253 bytes"},
		{"a name with a line feed", recordJSON("a\nb", "10.0.0.11", true, true), "name has control characters"},
		{"a name with an escape", `{"name":"\u001b[2J","private_ip":"10.0.0.11","ready":true,"worker":true}`, "name has control characters"},
		{"a name with half a surrogate pair", `{"name":"a\ud800","private_ip":"10.0.0.11","ready":true,"worker":true}`, "name is no UTF-8"},
		{"a name with bytes that are no UTF-8", "{\"name\":\"a\xff\",\"private_ip\":\"10.0.0.11\",\"ready\":true,\"worker\":true}", "name is no UTF-8"},

		{"an empty address", recordJSON("a", "", true, true), `private_ip is "", which is no IP address`},
		{"a host name", recordJSON("a", "node.example", true, true), `private_ip is "node.example", which is no IP address`},
		{"an address with a port", recordJSON("a", "10.0.0.11:80", true, true), `private_ip is "10.0.0.11:80", which is no IP address`},
		{"an address with a mask", recordJSON("a", "10.0.0.11/24", true, true), `private_ip is "10.0.0.11/24", which is no IP address`},
		{"leading zeros", recordJSON("a", "10.0.0.011", true, true), `private_ip is "10.0.0.011", which is no IP address`},
		{"white space around an address", recordJSON("a", " 10.0.0.11", true, true), `private_ip is " 10.0.0.11", which is no IP address`},
		{"a zone", recordJSON("a", "fd00::1%eth0", true, true), `private_ip is "fd00::1%eth0", which has a zone`},
		{"the unspecified address", recordJSON("a", "0.0.0.0", true, true), "private_ip is 0.0.0.0, which no node can be reached at from elsewhere"},
		{"the unspecified address in disguise", recordJSON("a", "::ffff:0.0.0.0", true, true), "private_ip is 0.0.0.0, which no node can be reached at from elsewhere"},
		{"loopback", recordJSON("a", "::1", true, true), "private_ip is ::1, which no node can be reached at from elsewhere"},
		{"link-local", recordJSON("a", "169.254.0.1", true, true), "private_ip is 169.254.0.1, which no node can be reached at from elsewhere"},
		{"multicast", recordJSON("a", "ff02::1", true, true), "private_ip is ff02::1, which no node can be reached at from elsewhere"},
		{"broadcast", recordJSON("a", "255.255.255.255", true, true), "private_ip is 255.255.255.255, which no node can be reached at from elsewhere"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records, err := parseRecords([]byte(arrayJSON(tc.text)))
			if err != nil || len(records) != 1 {
				t.Fatalf("got %v, %v", records, err)
			}
			if r := records[0]; r.problem != tc.bad || (r.problem == "") != (r.quote == "") {
				t.Errorf("got  %s (%s)\nwant %s", r.problem, r.quote, tc.bad)
			}
		})
	}
}

func TestParseRecords(t *testing.T) {
	nameless := `{"private_ip":"10.0.0.11","ready":true}`
	for _, tc := range []struct{ name, text, err string }{
		{"empty array", " [ ] \n", ""},
		{"nothing", "", "it is empty"},
		{"white space", " \n", "it is empty"},
		{"null", "null", "it is no JSON array"},
		{"a number", "5", "it is no JSON array"},
		{"an object", recordA, "it is no JSON array"},
		{"a byte order mark", "\ufeff" + validJSON, "it is no JSON array"},
		{"the opening bracket", "[", "it ends in the midst, after 0 whole records"},
		{"a comma too many", "[" + recordA + ",]", "it is no JSON after 1 whole records"},
		{"a comma too few", "[" + recordA + recordB + "]", "it is no JSON after 1 whole records"},
		{"the wrong closing bracket", "[" + recordA + "}", "it is no JSON after 1 whole records"},
		{"two arrays", "[][]", "something follows the end"},
		{"rubbish at the end", "[] ok", "something follows the end"},
		{"records line by line", recordA + "\n" + recordB, "it is no JSON array"},
		{"100,000 records", "[" + strings.Repeat("0,", 99_999) + "0]", ""},
		{"100,001 records", "[" + strings.Repeat("0,", 100_000) + "0]", "more than 100000 records"},
		{"two bad records of one name", arrayJSON(`{"name":"a"}`, `{"name":"a"}`), `two records have the name "a"`},
		{"a bad record of a good one's name", arrayJSON(recordA, `{"name":"a"}`), `two records have the name "a"`},
		{"a bad record of a good one's address", arrayJSON(recordA, nameless), `the records of "a" and "" have the same address 10.0.0.11`},
		{"one address in two forms", arrayJSON(recordJSON("a", "fd00::a", true, true), recordJSON("b", "FD00:0::A", true, false)), `the records of "a" and "b" have the same address fd00::a`},
		{"names that differ in case", arrayJSON(recordA, recordJSON("A", "10.0.0.12", true, true)), ""},
		{"several records without anything", "[{},{},null]", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseRecords([]byte(tc.text))
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func TestRejectsTruncatedInput(t *testing.T) {
	whole := strings.TrimSpace(validJSON)
	for n := range len(whole) {
		if records, err := parseRecords([]byte(whole[:n])); err == nil {
			t.Errorf("%q was read as %v", whole[:n], records)
		}
	}
}

func TestInvalidRecordTextIsBounded(t *testing.T) {
	long := strings.Repeat("ü\\n", 1<<14)
	for _, text := range []string{recordJSON("a", long, true, true), `{"name":"a","ready":{"x":"` + long + `"}}`, `{"name":["` + long + `"]}`, `"` + long + `"`} {
		records, err := parseRecords([]byte(arrayJSON(text)))
		if err != nil {
			t.Fatal(err)
		}
		state := newChangeTracker("the test")
		state.apply(records)
		changed, _ := state.takeChanges()
		for _, c := range changed {
			if len(c.Bad) > 800 || len(c.Trail[0].Saw) > 300 {
				t.Errorf("%d bytes: %.200s", len(c.Bad)+len(c.Trail[0].Saw), c.Bad)
			}
		}
		if len(state.partialError) > 1000 {
			t.Errorf("%d bytes: %.200s", len(state.partialError), state.partialError)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, row := range badTexts {
		if len(row.text) < 1<<10 {
			f.Add([]byte(row.text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := parseRecords(data)
		if err != nil {
			return
		}
		var all []json.RawMessage
		if err := json.Unmarshal(data, &all); err != nil || len(all) != len(records) {
			t.Fatalf("%d records of what encoding/json takes for %d: %v", len(records), len(all), err)
		}
		names, addresses := map[string]bool{}, map[string]bool{}
		var again []string
		for _, r := range records {
			if r.name != "" && names[r.name] || r.address.IsValid() && addresses[r.address.String()] {
				t.Fatalf("twice: %+v", r)
			}
			names[r.name], addresses[r.address.String()] = true, true
			if r.problem != "" {
				continue
			}
			if r.name == "" || len(r.name) > maxNameBytes || !r.address.IsGlobalUnicast() || r.address.Is4In6() || r.address.Zone() != "" {
				t.Fatalf("good: %+v", r)
			}
			quoted, _ := json.Marshal(r.name)
			again = append(again, strings.Replace(recordJSON("", r.address.String(), r.ready, r.worker), `""`, string(quoted), 1))
		}
		same, err := parseRecords([]byte(arrayJSON(again...)))
		if err != nil || len(same) != len(again) {
			t.Fatalf("what was good is not when it is written again: %v", err)
		}
	})
}
