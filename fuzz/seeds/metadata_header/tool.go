// executor_id: a/b
// config:
//   a: |
//     x
package main
