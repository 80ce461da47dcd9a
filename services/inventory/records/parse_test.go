package records

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestParseRecord(t *testing.T) {
	for _, tc := range []struct{ name, text, problem string }{
		{"the usual form", recordA, ""},
		{"fields in another order and white space", "{ \"worker\" : true,\n\"ready\":false, \"private_ip\":\"10.0.0.11\",\t\"name\":\"a\" }", ""},
		{"unknown fields are ignored", `{"zone":{"name":["x",1e400]},"name":"a","private_ip":"10.0.0.11","ready":true,"worker":true,"Name":5}`, ""},
		{"IPv6 in long form", recordJSON("a", "fd00:0:0::0001", true, true), ""},
		{"a name of 253 bytes", recordJSON(strings.Repeat("x", 253), "10.0.0.11", true, true), ""},

		{"null", `null`, "not a JSON object"},
		{"a string", `"a"`, "not a JSON object"},
		{"an array", `["a","10.0.0.11",true,true]`, "not a JSON object"},
		{"an empty object", `{}`, "name is missing, private_ip is missing, ready is missing, worker is missing"},
		{"all null", `{"name":null,"private_ip":null,"ready":null,"worker":null}`, "name is null, want a string, private_ip is null, want a string, ready is null, want true or false, worker is null, want true or false"},
		{"all of another type", `{"name":1,"private_ip":["10.0.0.11"],"ready":"true","worker":1}`, `name is 1, want a string, private_ip is ["10.0.0.11"], want a string, ready is "true", want true or false, worker is 1, want true or false`},
		{"names of fields in capitals", `{"NAME":"a","Private_IP":"10.0.0.11","READY":true,"Worker":true}`, "name is missing, private_ip is missing, ready is missing, worker is missing"},
		{"a field twice", `{"name":"a","private_ip":"10.0.0.11","ready":true,"ready":true,"worker":true}`, `duplicate field "ready"`},
		{"a name twice", `{"name":"a","name":"b","private_ip":"10.0.0.11","ready":true,"worker":true}`, `duplicate field "name"`},

		{"an empty name", recordJSON("", "10.0.0.11", true, true), "name is empty"},
		{"a name of 254 bytes", recordJSON(strings.Repeat("x", 254), "10.0.0.11", true, true), "name is longer than 253 bytes"},
		{"a name with a line feed", recordJSON("a\nb", "10.0.0.11", true, true), "name has control characters"},
		{"a name with an escape", `{"name":"\u001b[2J","private_ip":"10.0.0.11","ready":true,"worker":true}`, "name has control characters"},
		{"a name with an unpaired surrogate", `{"name":"a\ud800","private_ip":"10.0.0.11","ready":true,"worker":true}`, "name is not valid UTF-8"},
		{"a name with invalid UTF-8", "{\"name\":\"a\xff\",\"private_ip\":\"10.0.0.11\",\"ready\":true,\"worker\":true}", "name is not valid UTF-8"},

		{"an empty address", recordJSON("a", "", true, true), `private_ip is "", want an IP address`},
		{"a host name", recordJSON("a", "node.example", true, true), `private_ip is "node.example", want an IP address`},
		{"an address with a port", recordJSON("a", "10.0.0.11:80", true, true), `private_ip is "10.0.0.11:80", want an IP address`},
		{"an address with a mask", recordJSON("a", "10.0.0.11/24", true, true), `private_ip is "10.0.0.11/24", want an IP address`},
		{"leading zeros", recordJSON("a", "10.0.0.011", true, true), `private_ip is "10.0.0.011", want an IP address`},
		{"white space around an address", recordJSON("a", " 10.0.0.11", true, true), `private_ip is " 10.0.0.11", want an IP address`},
		{"a zone", recordJSON("a", "fd00::1%eth0", true, true), `private_ip is "fd00::1%eth0", want an address without a zone`},
		{"the unspecified address", recordJSON("a", "0.0.0.0", true, true), "private_ip is 0.0.0.0, want an address that other hosts can reach"},
		{"the unspecified address as mapped IPv6", recordJSON("a", "::ffff:0.0.0.0", true, true), "private_ip is 0.0.0.0, want an address that other hosts can reach"},
		{"loopback", recordJSON("a", "::1", true, true), "private_ip is ::1, want an address that other hosts can reach"},
		{"link-local", recordJSON("a", "169.254.0.1", true, true), "private_ip is 169.254.0.1, want an address that other hosts can reach"},
		{"multicast", recordJSON("a", "ff02::1", true, true), "private_ip is ff02::1, want an address that other hosts can reach"},
		{"broadcast", recordJSON("a", "255.255.255.255", true, true), "private_ip is 255.255.255.255, want an address that other hosts can reach"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes, flaw, err := parseRecords([]byte(arrayJSON(tc.text)), "the test")
			if err != nil || len(nodes) != 1 {
				t.Fatalf("got %v, %v", nodes, err)
			}
			if n := nodes[0]; n.Invalid != tc.problem || (tc.problem == "") != (flaw == "") || !strings.HasSuffix(flaw, tc.problem) {
				t.Errorf("got  %s (%s)\nwant %s", n.Invalid, flaw, tc.problem)
			}
		})
	}
}

func TestParseRecords(t *testing.T) {
	nameless := `{"private_ip":"10.0.0.11","ready":true}`
	for _, tc := range []struct{ name, text, wantErr string }{
		{"empty array", " [ ] \n", ""},
		{"nothing", "", "empty; want"},
		{"white space", " \n", "empty; want"},
		{"null", "null", "not a JSON array"},
		{"a number", "5", "not a JSON array"},
		{"an object", recordA, "not a JSON array"},
		{"a byte order mark", "\ufeff" + validJSON, "not a JSON array"},
		{"the opening bracket", "[", "truncated after 0 records"},
		{"a trailing comma", "[" + recordA + ",]", "invalid JSON after 1 record"},
		{"a missing comma", "[" + recordA + recordB + "]", "invalid JSON after 1 record"},
		{"the wrong closing bracket", "[" + recordA + "}", "invalid JSON after 1 record"},
		{"two arrays", "[][]", "trailing data after JSON array"},
		{"text after the array", "[] ok", "trailing data after JSON array"},
		{"records line by line", recordA + "\n" + recordB, "not a JSON array"},
		{"100,000 records", "[" + strings.Repeat("0,", 99_999) + "0]", ""},
		{"100,001 records", "[" + strings.Repeat("0,", 100_000) + "0]", "more than 100000 records"},
		{"two invalid records of one name", arrayJSON(`{"name":"a"}`, `{"name":"a"}`), `two records have the name "a"`},
		{"an invalid record with the name of a valid one", arrayJSON(recordA, `{"name":"a"}`), `two records have the name "a"`},
		{"an invalid record with the address of a valid one", arrayJSON(recordA, nameless), `the records of "a" and "" have the same address 10.0.0.11`},
		{"one address in two forms", arrayJSON(recordJSON("a", "fd00::a", true, true), recordJSON("b", "FD00:0::A", true, false)), `the records of "a" and "b" have the same address fd00::a`},
		{"names that differ in case", arrayJSON(recordA, recordJSON("A", "10.0.0.12", true, true)), ""},
		{"several empty records", "[{},{},null]", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := parseRecords([]byte(tc.text), "the test")
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestRejectsTruncatedInput(t *testing.T) {
	valid := strings.TrimSpace(validJSON)
	for n := range len(valid) {
		if records, _, err := parseRecords([]byte(valid[:n]), "the test"); err == nil {
			t.Errorf("%q was read as %v", valid[:n], records)
		}
	}
}

func TestInvalidRecordTextIsBounded(t *testing.T) {
	long := strings.Repeat("ü\\n", 1<<14)
	for _, text := range []string{recordJSON("a", long, true, true), `{"name":"a","ready":{"x":"` + long + `"}}`, `{"name":["` + long + `"]}`, `"` + long + `"`} {
		nodes, flaw, err := parseRecords([]byte(arrayJSON(text)), "the test")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range nodes {
			if len(c.Invalid) > 800 || len(c.StateReason) > 400 {
				t.Errorf("%d bytes: %.200s", len(c.Invalid)+len(c.StateReason), c.Invalid)
			}
		}
		if len(flaw) > 1000 {
			t.Errorf("%d bytes: %.200s", len(flaw), flaw)
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
		nodes, _, err := parseRecords(data, "the test")
		if err != nil {
			return
		}
		var all []json.RawMessage
		if err := json.Unmarshal(data, &all); err != nil || len(all) != len(nodes) {
			t.Fatalf("%d records of what encoding/json takes for %d: %v", len(nodes), len(all), err)
		}
		names, addresses := map[string]bool{}, map[string]bool{}
		var again []string
		for _, n := range nodes {
			var address netip.Addr
			if len(n.InternalIPs) > 0 {
				address = n.InternalIPs[0]
			}
			if n.Name != "" && names[n.Name] || address.IsValid() && addresses[address.String()] {
				t.Fatalf("duplicate: %+v", n)
			}
			names[n.Name], addresses[address.String()] = true, true
			if n.Invalid != "" {
				continue
			}
			if n.Name == "" || len(n.Name) > maxNameBytes || !address.IsGlobalUnicast() || address.Is4In6() || address.Zone() != "" {
				t.Fatalf("accepted: %+v", n)
			}
			quoted, _ := json.Marshal(n.Name)
			record := recordJSON("", address.String(), n.State == roster.Ready, n.Excluded == 0)
			again = append(again, strings.Replace(record, `""`, string(quoted), 1))
		}
		same, _, err := parseRecords([]byte(arrayJSON(again...)), "the test")
		if err != nil || len(same) != len(again) {
			t.Fatalf("valid records do not parse after a round trip: %v", err)
		}
	})
}
