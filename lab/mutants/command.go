package mutants

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// list is where the results of the last run are, below the root of the checkout.
const list = ".bin/mutants.txt"

// Command is "lab mutants".
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "mutants [name...]",
		Short: "Break the product on purpose, one bug at a time, and print which test catches each",
		Long:  "Break the product on purpose, one bug at a time, print which test catches each, and write that to " + list + ".",
		RunE: func(cmd *cobra.Command, names []string) error {
			root, err := pair.Root()
			if err != nil {
				return err
			}
			chosen, err := All()
			if err != nil {
				return err
			}
			if len(names) > 0 {
				chosen = slices.DeleteFunc(chosen, func(m Mutant) bool { return !slices.Contains(names, m.Name) })
			}
			if len(chosen) == 0 {
				return errors.New("no mutant of that name")
			}
			file, err := os.Create(filepath.Join(root, list))
			if err != nil {
				return err
			}
			defer file.Close() //nolint:errcheck // the terminal has the list too
			out := io.MultiWriter(cmd.OutOrStdout(), file)
			results := make(chan result)
			var trying errgroup.Group
			trying.SetLimit(2)
			var missed atomic.Int32
			printing := make(chan struct{})
			go func() {
				defer close(printing)
				for r := range results {
					if !r.caught() {
						missed.Add(1)
					}
					fmt.Fprintln(out, r)
				}
			}()
			for _, m := range chosen {
				trying.Go(func() error {
					results <- try(cmd.Context(), root, m)
					return cmd.Context().Err()
				})
			}
			err = trying.Wait()
			close(results)
			<-printing
			fmt.Fprintf(out, "%d mutants, %d caught\n", len(chosen), len(chosen)-int(missed.Load()))
			if n := missed.Load(); n > 0 && err == nil {
				err = fmt.Errorf("%d mutants were not caught", n)
			}
			return err
		},
	}
}
