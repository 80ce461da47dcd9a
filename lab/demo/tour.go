package demo

import (
	"fmt"
	"os"
	"strings"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// tour says how to look around in what was left up.
func (s *story) tour() error {
	stopping, err := s.stopAndStart()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\n%s\n", s.bold("It is all left up. From another terminal, at the root of the checkout:"))
	lab := ".bin/lab exec "
	for _, group := range []struct {
		title    string
		commands []string
	}{
		{"What was written, and the Events about it", []string{
			"kubectl --context consuming -n " + pair.Namespace + " get endpointslices -o wide",
			"kubectl --context consuming -n " + pair.Namespace + " get events",
			"kubectl --context consuming -n " + pair.Namespace + " get lease",
		}},
		{"The state of each component, problems first, and the reason for each address", []string{
			"slicefeed-writer status --debug-address " + s.pair.Writers[1].DebugAddress(),
			"slicefeed-inventory status --debug-address " + s.pair.Inventory.DebugAddress(),
		}},
		{"Change something, and inspect it again", []string{
			"kubectl --context secured get nodes",
			"kubectl --context secured taint node " + s.workers[0].Name + " " + pair.DrainTaint + "=:NoSchedule",
			"kubectl --context secured delete node " + s.workers[1].Name,
		}},
		{"Query the inventory, as an operator", []string{
			"grpcurl " + strings.Join(s.grpcurl(), " ") + " " + inventoryAt() + " " + listNodes,
			"grpcurl " + strings.Join(s.grpcurl(), " ") + ` -d '{}' ` + inventoryAt() + " slicefeed.inventory.v1.InventoryService/WatchNodes",
		}},
		{"Make the IONOS API fail, and repair it", []string{
			`curl -s -X POST ` + s.pair.Cloud.SideDoor + `/lab/faults -d '{"kind":"503"}'`,
			`curl -s -X DELETE ` + s.pair.Cloud.SideDoor + `/lab/faults`,
		}},
		{"Stop a component, and start it again in that terminal", stopping},
		{"Metrics", []string{
			"curl -s http://" + s.pair.Inventory.AdminAddress() + "/metrics",
			"curl -s http://" + s.pair.Writers[0].AdminAddress() + "/metrics",
		}},
	} {
		fmt.Fprintf(s.out, "\n   %s\n", group.title)
		for _, command := range group.commands {
			fmt.Fprintf(s.out, "     %s\n", lab+command)
		}
	}
	fmt.Fprintf(s.out, "\n   Logs, keys and kubeconfigs are in %s\n", s.pair.Dir())
	fmt.Fprintf(s.out, "   To stop: Ctrl-C here, or kill %d\n", os.Getpid())
	return nil
}

// stopAndStart returns the commands that stop each component and start it again.
func (s *story) stopAndStart() (commands []string, err error) {
	for _, half := range append([]*pair.Component{s.pair.Inventory}, s.pair.Writers...) {
		script, err := half.StartScript()
		if err != nil {
			return nil, fmt.Errorf("say how to start %s: %w", half.Name, err)
		}
		if half.Running() {
			commands = append(commands, fmt.Sprintf("kill %d    # %s", half.PID(), half.Name))
		}
		commands = append(commands, "sh "+script)
	}
	return commands, nil
}
