/* Layouts without any port: shapes, boxes, places, plans, and parts that are regrouped. */
#include "check.h"

int main(void) {
    polyduct_layout *rows, *columns, *dealt;
    int64_t shape[] = {6, 4}, local[POLYDUCT_MAX_DIMS], strides[POLYDUCT_MAX_DIMS], lo[8], hi[8], unit,
            offset;
    int ndim;
    size_t len, count;
    const char *text;
    OK(polyduct_layout_new(&rows, " block , * ; order=F", POLYDUCT_I32, 2, shape, 2));
    OK(polyduct_layout_new(&columns, "*,block;halo=0,1", POLYDUCT_I32, 2, shape, 2));
    OK(polyduct_layout_new(&dealt, "cyclic,*", POLYDUCT_I32, 2, shape, 2));
    OK(polyduct_layout_text(rows, &text));
    TRUE(!strcmp(text, "block,*;order=F"));
    OK(polyduct_layout_local(rows, 1, &ndim, local, strides));
    TRUE(ndim == 2 && local[0] == 3 && local[1] == 4 && strides[0] == 1 && strides[1] == 3);
    OK(polyduct_layout_size(columns, 0, &len));
    TRUE(len == 6 * 3 * 4);
    OK(polyduct_layout_boxes(columns, 1, 0, 1, lo, hi, &count));
    TRUE(count == 1 && lo[0] == 0 && hi[0] == 6 && lo[1] == 2 && hi[1] == 4);
    OK(polyduct_layout_boxes(columns, 1, 1, 1, lo, hi, &count));
    TRUE(count == 1 && lo[1] == 1);
    OK(polyduct_layout_boxes(dealt, 1, 0, 2, lo, hi, &count));
    TRUE(count == 3 && lo[0] == 1 && hi[0] == 2 && lo[2] == 3);
    OK(polyduct_layout_boxes(dealt, 1, 0, 0, NULL, NULL, &count));
    OK(polyduct_layout_locate(rows, (int64_t[]){4, 1}, &unit, &offset));
    TRUE(unit == 1 && offset == 4);
    FAILS(POLYDUCT_LAYOUT_ERROR, "", polyduct_layout_locate(rows, (int64_t[]){6, 1}, &unit, &offset));
    FAILS(POLYDUCT_LAYOUT_ERROR, "", polyduct_layout_size(rows, 2, &len));
    OK(polyduct_plan_text(dealt, rows, &text));
    TRUE(strstr(text, "0 -> 0: 32 bytes in ") && strstr(text, "1 -> 0: 16 bytes in ") &&
         strstr(text, "1 -> 1: 32 bytes in "));

    int32_t parts[2][12], result[2][18];
    for (int u = 0; u < 2; u++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) parts[u][i + j * 3] = (u * 3 + i) * 4 + j;
    const void *from[] = {parts[0], parts[1]};
    void *to[] = {result[0], result[1]}, *same[] = {result[0], result[0]};
    size_t from_lens[] = {sizeof *parts, sizeof *parts}, to_lens[] = {sizeof *result, sizeof *result};
    OK(polyduct_redistribute(rows, from, from_lens, columns, to, to_lens));
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 3; j++)
            TRUE(result[0][i * 3 + j] == i * 4 + j && result[1][i * 3 + j] == i * 4 + j + 1);
    FAILS(POLYDUCT_MISUSE, "share memory",
          polyduct_redistribute(rows, from, from_lens, columns, same, to_lens));
    to[1] = parts[0];
    FAILS(POLYDUCT_MISUSE, "share memory",
          polyduct_redistribute(rows, from, from_lens, columns, to, to_lens));
    to[1] = result[1];
    to_lens[1] = 4;
    FAILS(POLYDUCT_WRONG_SIZE, "destination part 1 has 4 bytes",
          polyduct_redistribute(rows, from, from_lens, columns, to, to_lens));
    OK(polyduct_layout_close(rows));
    OK(polyduct_layout_close(columns));
    OK(polyduct_layout_close(dealt));
    return 0;
}
