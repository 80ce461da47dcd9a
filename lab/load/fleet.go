package load

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Fleet is the file that an inventory takes its nodes from.
type Fleet struct {
	path  string
	nodes []record
}

type record struct {
	Name   string `json:"name"`
	IP     string `json:"private_ip"`
	Ready  bool   `json:"ready"`
	Worker bool   `json:"worker"`
}

// NodeName is the name of a node by its number.
func NodeName(i int) string { return fmt.Sprintf("worker-%06d", i) }

func nodeAddress(i int) string { return fmt.Sprintf("10.%d.%d.%d", 1+i>>16, i>>8&255, i&255) }

// nodeNumber is the inverse of NodeName: names are as good as numbers, and take less of our memory.
func nodeNumber(name string) (int, error) { return strconv.Atoi(strings.TrimPrefix(name, "worker-")) }

// NewFleet writes so many nodes, all of them ready, into a file in a new directory of dir.
func NewFleet(dir string, nodes int) (*Fleet, error) {
	dir = filepath.Join(dir, "nodes") // watched by the inventory, so nothing else is in it
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	f := &Fleet{path: filepath.Join(dir, "nodes.json")}
	for i := range nodes {
		f.nodes = append(f.nodes, record{Name: NodeName(i), IP: nodeAddress(i), Ready: true, Worker: true})
	}
	_, err := f.replace()
	return f, err
}

func (f *Fleet) env() []string {
	return []string{"SOURCE_KIND=file", "INVENTORY_FILE_PATH=" + f.path, "SOURCE_POLL_INTERVAL=1s"}
}

// Flip alters nodes, Ready to not and back, and returns when the new file was put in place.
func (f *Fleet) Flip(numbers ...int) (time.Time, error) {
	for _, i := range numbers {
		f.nodes[i].Ready = !f.nodes[i].Ready
	}
	return f.replace()
}

func (f *Fleet) replace() (time.Time, error) {
	text, err := json.Marshal(f.nodes)
	if err != nil {
		return time.Time{}, err
	}
	if err := os.WriteFile(f.path+".new", text, 0o600); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	return now, os.Rename(f.path+".new", f.path)
}
