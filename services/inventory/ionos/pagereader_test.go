package ionos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

// Apart from the servers, the SDK decodes the same from the rest as from the page.
func TestExtractServers(t *testing.T) {
	for _, tc := range []struct{ page, rest, fails string }{
		{`{"id":"x","items":[{"id":"a"},{"id":"b"}],"limit":2.0,"_links":{"next":"n"}}`, `{"_links":{"next":"n"},"id":"x","items":[],"limit":2.0}`, ""},
		{` { "items" : [ ] , "offset" : 0 } `, `{"items":[],"offset":0}`, ""},
		{`{"ITEMS":[{"id":"a"},{"id":"b"}]}`, `{"items":[]}`, ""},
		{`{"items":null}`, `{"items":null}`, ""},
		{`{}`, `{}`, ""},
		{`null`, "", "want {"},
		{``, "", "unexpected end of JSON input"},
		{`{"items":[{"id":"a"}`, "", "unexpected end of JSON input"},
		{`{"items":[{"id":"a"}],"items":[]}`, "", "twice"},
		{`{"items":[]} {"items":[]}`, "", "trailing data after the response: {"},
		{`{"items":{}}`, "", "not a list"},
		{`{"items":[{"id":7}]}`, "", "cannot unmarshal number"},
		{`[]`, "", "unexpected [ in the response, want {"},
		{`<html>`, "", "invalid character"},
		{`{"items":[],}`, "", "invalid character"},
	} {
		var ids []string
		rest, err := extractServers(strings.NewReader(tc.page), func(s ionoscloud.Server) error {
			ids = append(ids, *s.Id)
			return nil
		})
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: got %v, want %q", tc.page, err, tc.fails)
			}
			continue
		}
		if err != nil || string(rest) != tc.rest || strings.Contains(tc.page, `"a"`) && fmt.Sprint(ids) != "[a b]" {
			t.Errorf("%s: got %s, %v, servers %v; want %s", tc.page, rest, err, ids, tc.rest)
		}
	}
}

func FuzzExtractServers(f *testing.F) {
	servers, err := os.ReadFile("testdata/servers.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(servers)
	f.Add([]byte(`{"items":[{"id":"a"}],"id":"x"}`))
	f.Add([]byte(`{"Items":null}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		n := 0
		rest, err := extractServers(bytes.NewReader(page), func(ionoscloud.Server) error { n++; return nil })
		if err != nil {
			return
		}
		var sdk, left ionoscloud.Servers
		if len(page) > 0 {
			pageErr, restErr := json.Unmarshal(page, &sdk), json.Unmarshal(rest, &left)
			if (pageErr == nil) != (restErr == nil) {
				t.Fatalf("%q: the page gives %v, the rest %q gives %v", page, pageErr, rest, restErr)
			}
			if pageErr != nil {
				return
			}
		}
		if (sdk.Items == nil) != (left.Items == nil) || sdk.Items != nil && len(*sdk.Items) != n ||
			ionoscloud.ToValueDefault(sdk.Id) != ionoscloud.ToValueDefault(left.Id) {
			t.Errorf("page %q gives %q and %d servers", page, rest, n)
		}
	})
}
