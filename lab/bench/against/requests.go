package against

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// auditLog is the file that each API server logs requests to. Its metrics name no client, and a
// proxy that counts would lie on the very way that is measured.
const auditLog = "requests.log"

// auditPolicy logs all requests but those of whoever changes and watches, at their arrival.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: None
  userGroups: [system:masters]
- level: Metadata
  userGroups: [system:serviceaccounts]
- level: None
`

// requests counts what the API servers were asked, by the user.
type requests struct {
	logs []string
	read map[string]int64 // how far, by log
	all  map[string]asked // by user
}

// asked is how many requests there were, and how many of them wrote a slice. Most others renew
// a Lease, or are what kubectl asks before it writes.
type asked struct{ requests, slices int }

func newRequests(p *pair.Pair) *requests {
	return &requests{
		logs: []string{filepath.Join(p.Secured.Dir(), auditLog), filepath.Join(p.Consuming.Dir(), auditLog)},
		read: map[string]int64{}, all: map[string]asked{},
	}
}

// of is what these users have asked so far. A request is logged before it is answered.
func (r *requests) of(users []string) (sum asked, err error) {
	for _, log := range r.logs {
		if err := r.follow(log); err != nil {
			return asked{}, fmt.Errorf("count requests: %w", err)
		}
	}
	for _, user := range users {
		sum.requests += r.all[user].requests
		sum.slices += r.all[user].slices
	}
	return sum, nil
}

// follow reads what has been logged since it was called last.
func (r *requests) follow(log string) error {
	text, err := readFrom(log, r.read[log])
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be half written
	r.read[log] += int64(len(text))
	for line := range bytes.Lines(text) {
		var entry struct {
			Verb string `json:"verb"`
			User struct {
				Name string `json:"username"`
			} `json:"user"`
			Object struct {
				Resource string `json:"resource"`
			} `json:"objectRef"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return fmt.Errorf("%s: %w", log, err)
		}
		sum := r.all[entry.User.Name]
		sum.requests++
		if entry.Object.Resource == "endpointslices" && slices.Contains([]string{"create", "update", "patch", "delete"}, entry.Verb) {
			sum.slices++
		}
		r.all[entry.User.Name] = sum
	}
	return nil
}

func readFrom(path string, offset int64) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // the server makes it with the first line
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	text := make([]byte, info.Size()-offset)
	_, err = file.ReadAt(text, offset)
	return text, err
}
