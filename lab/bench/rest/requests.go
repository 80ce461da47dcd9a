package rest

import (
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

// inventoryUser is the account of the inventory in its cluster.
const inventoryUser = "system:serviceaccount:slicefeed:slicefeed-inventory"

// auditLog is in the directory of each API server.
const auditLog = "requests.log"

// auditPolicy has the API servers log each request of the two halves as it arrives.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete]
rules:
- level: Metadata
  users: ["` + inventoryUser + `", "` + pair.WriterUser + `"]
- level: None
`

// asked are a half's requests to its API server in some time, by what they are.
type asked struct {
	lease, watches int
	others         []string // verb and resource of each
	writes         int      // those of others that change anything
}

// requests reads an audit log for what arrived between two moments.
func requests(log string, from, to time.Time) (asked, error) {
	var a asked
	all, err := audit.Log{Path: log}.Entries()
	for _, e := range all {
		if e.ReceivedAt.Before(from) || e.ReceivedAt.After(to) {
			continue
		}
		switch {
		case e.Object.Resource == "leases":
			a.lease++
		case e.Verb == "watch":
			a.watches++
		default:
			a.others = append(a.others, e.Verb+" "+e.Object.Resource)
			if e.Verb != "get" && e.Verb != "list" {
				a.writes++
			}
		}
	}
	return a, err
}

// listings are the requests to the cloud in some time.
type listings struct {
	begun               int // listings
	pages, lans, others int
}

func cloudRequests(all []ionosapi.Request, from, to time.Time) (l listings) {
	for _, r := range all {
		path, query, _ := strings.Cut(r.URL, "?")
		switch {
		case r.At.Before(from) || r.At.After(to):
		case strings.HasSuffix(path, "/servers"):
			l.pages++
			if strings.Contains("&"+query+"&", "&offset=0&") {
				l.begun++
			}
		case strings.HasSuffix(path, fmt.Sprintf("/lans/%d", pair.PrivateLAN)):
			l.lans++
		default:
			l.others++
		}
	}
	return l
}
