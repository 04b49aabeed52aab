/* Which of the functions named by its arguments are there: run with the same libraries before others
 * as a program is to be, it says which mallocs have names of their own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **names) {
    for (int at = 1; at < count; at++) if (dlsym(RTLD_DEFAULT, names[at])) puts(names[at]);
    return 0;
}
