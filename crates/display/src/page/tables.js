// Written by tables.py: 256 colours each, RGB in base64; even steps of lightness, diverging, or cyclic.
const TABLES = {
  viridis: { kind: "even", rgb:
    "RAFURAJVRANXRQVYRQZaRQhbRglcRgteRgxfRg5hRw9iRxFjRxJlRxRmRxVnRxZpRxhqSBlrSBpsSBxuSB1vSB5wSCBxSCFySCJz" +
    "SCN0RyV1RyZ2Ryd3Ryh4Ryp5Ryt6Ryx7Ri18Ri98RjB9RjF+RTJ/RTR/RTWARTaBRDeBRDmCQzqDQzuDQzyEQj2EQj6FQkCFQUGG" +
    "QUKGQEOHQESHP0WHP0eIPkiIPkmJPUqJPUuJPUyJPE2KPE6KO1CKO1GKOlKLOlOLOVSLOVWLOFaLOFeMN1iMN1mMNlqMNluMNVyM" +
    "NV2MNF6NNF+NM2CNM2GNMmKNMmONMWSNMWWNMWaNMGeNMGiNL2mNL2qNLmuOLmyOLm2OLW6OLW+OLHCOLHGOLHKOK3OOK3SOKnWO" +
    "KnaOKneOKXiOKXmOKHqOKHqOKHuOJ3yOJ32OJ36OJn+OJoCOJoGOJYKOJYONJISNJIWNJIaNI4eNI4iNI4mNIomNIoqNIouNIYyN" +
    "IY2MIY6MII+MIJCMIJGMH5KMH5OLH5SLH5WLH5aLHpeKHpiKHpmKHpmKHpqJHpuJHpyJHp2IHp6IHp+IHqCHH6GHH6KGH6OGIKSF" +
    "IKWFIaaFIaeEIqeEI6iDI6mCJKqCJauBJqyBJ62AKK5/Ka9/KrB+K7F9LLF9LrJ8L7N7MLR6MrV6M7Z5Nbd4Nrh3OLl2Obl2O7p1" +
    "Pbt0PrxzQL1yQr5xRL5wRb9vR8BuScFtS8JsTcJrT8NpUcRoU8VnVcZmV8ZlWcdkW8hiXslhYMlgYspfZMtdZ8xcacxba81Zbc5Y" +
    "cM5Wcs9VdNBUd9BSedFRfNJPftJOgdNMg9NLhtRJiNVHi9VGjdZEkNZDktdBldc/l9g+mtg8ndk6n9k4oto3pdo1p9szqtsyrdww" +
    "r9wust0std0rt90put4nvd4mv98kwt8ixd8hx+AfyuAezeAdz+Ec0uEb1OEa1+IZ2uIY3OIY3+MY4eMY5OMY5+QZ6eQZ7OQa7uUb" +
    "8eUc8+Ue9uYf+OYh+uYi/eck" },
  magma: { kind: "even", rgb:
    "AAADAAAEAAAGAQAHAQEJAQELAgINAgIPAwMRBAMTBAQVBQQXBgUZBwUbCAYdCQcfCgciCwgkDAkmDQooDgoqDwssEAwvEQwxEg0z" +
    "FA01FQ44Fg46Fw88GA8/GhBBGxBEHBBGHhBJHxFLIBFNIhFQIxFSJRFVJhFXKBFZKhFcKxFeLRBgLxBiMBBlMhBnNBBoNQ9qNw9s" +
    "OQ9uOw9vPA9xPg9yQA9zQg90Qw91RQ92Rw93SBB4ShB5SxB5TRF6TxF7UBJ7UhJ8UxN8VRN9VxR9WBV+WhV+WxZ+XRd+Xhd/YBh/" +
    "YRh/Yxl/ZRqAZhqAaBuAaRyAaxyAbB2Abh6Bbx6BcR+Bcx+BdCCBdiGBdyGBeSKBeiKBfCOBfiSBfySBgSWBgiWBhCaBhSaBhyeB" +
    "iSiBiiiBjCmAjSmAjyqAkSqAkiuAlCuAlSyAlyx/mS1/mi1/nC5/ni5+ny9+oS9+ozB+pDB9pjF9pzF9qTJ8qzN8rDN7rjR7sDR7" +
    "sTV6szV6tTZ5tjZ5uDd4uTd4uzh3vTl3vjl2wDp1wjp1wzt0xTx0xjxzyD1yyj5yyz5xzT9wzkBw0EFv0UJu00Jt1ENt1kRs10Vr" +
    "2UZq2kdp3Ehp3Ulo3kpn4Etm4Uxm4k1l5E5k5VBj5lFi51Ji6FRh6lVg61Zg7Fhf7Vlf7lte7l1d715d8GBd8WFc8mNc82Vc82db" +
    "9Ghb9Wpb9Wxb9m5b9nBb93Fb93Nc+HVc+Hdc+Xlc+Xtd+X1d+n9e+oBe+oJf+4Rg+4Zg+4hh+4pi/Ixj/I5j/JBk/JJl/JNm/ZVn" +
    "/Zdo/Zlp/Ztq/Z1r/Z9s/aFu/aJv/aRw/qZx/qhz/qp0/qx1/q52/q94/rF5/rN7/rV8/rd9/rl//ruA/ryC/r6D/sCF/sKG/sSI" +
    "/saJ/seL/smN/suO/c2Q/c+S/dGT/dKV/dSX/daY/dia/dqc/dyd/d2f/d+h/eGj/OOl/OWm/Oao/Oiq/Oqs/Oyu/O6w/PCx/PGz" +
    "/PO1/PW3+/e5+/m7+/q9+/y/" },
  inferno: { kind: "even", rgb:
    "AAADAAAEAAAGAQAHAQEJAQELAgEOAgIQAwISBAMUBAMWBQQYBgQbBwUdCAYfCQYhCgcjCwcmDQgoDggqDwktEAkvEgoyEwo0FAs2" +
    "Fgs5Fws7GQs+GgtAHAxDHQxFHwxHIAxKIgtMJAtOJgtQJwtSKQtUKwpWLQpYLgpaMApcMgldNAlfNQlgNwlhOQliOwlkPAllPglm" +
    "QAlmQQlnQwpoRQppRgppSAtqSgtqSwxrTQxrTw1sUA1sUg5sUw5tVQ9tVw9tWBBtWhFtWxFuXRJuXxJuYBNuYhRuYxRuZRVuZhVu" +
    "aBZuahduaxdubRhubhhucBluchltcxptdRttdhtteBxtehxtex1sfR1sfh5sgB9rgR9rgyBrhSBqhiFqiCFqiSJpiyJpjSNpjiRo" +
    "kCRokSVnkyVnlSZmliZmmCdlmShkmyhknCljniljoCpioSthoythpCxgpixfpy1fqS5eqy5drC9crjBbrzFbsTFasjJZtDNYtTNX" +
    "tzRWuDVWujZVuzdUvTdTvjhSvzlRwTpQwjtPxDxOxT1Nxz5MyD5LyT9Ky0BJzEFIzUJHz0RG0EVE0UZD0kdC1EhB1UlA1ko/10s+" +
    "2U092k4720863FA53VI43lM331Q24FY04lcz41gy5Fox5Vsw5lwu5l4t518s6GEr6WIq6mQo62Un7Gcm7Wgl7Woj7mwi720h8G8f" +
    "8HAe8XId8nQc8nUa83cZ83kY9HoW9XwV9X4U9oAS9oER94MQ94UO+IcN+IgM+IoL+YwJ+Y4I+ZAI+pEH+pMG+pUG+pcG+5kG+5sG" +
    "+50G+54H+6AH+6II+6QK+6YL+6gN+6oO+6wQ+64S+7AU+7EW+7MY+7Ua+7cc+7ke+rsh+r0j+r8l+sEo+cMq+cUs+ccv+Mkx+Ms0" +
    "+M03988699E89tM/9tVC9ddF9dlI9NtL9NxP895S8+BW8+JZ8uRd8uZg8ehk8elo8ets8e1w8e508fB58fJ98vOB8vSF8/aJ9PeN" +
    "9fiR9vqV9/uZ+fyd+v2g/P6k" },
  cividis: { kind: "even", rgb:
    "ACJNACNPACNQACRSACVUACZVACZXACdZAChbAChcACleACpgACpiACtkACxmACxnAC1pAC5rAC9tAC9vADBwADBwADFwADFwBDJw" +
    "CDNwCzNwDjRwETVvFDZvFjZvGDdvGjhvHDhuHTluHzpuITtuIjtuJDxuJT1tJz1tKD5tKj9tKz9tLEBtLkFsL0JsMEJsMUNsMkRs" +
    "NERsNUVsNkZsN0ZsOEdsOUhsOkhrO0lrPUprPktrP0trQExrQU1rQk1rQ05rRE9rRU9rRlBrR1FrSFFrSVJrSlNrS1RsTFRsTVVs" +
    "TlZsTlZsT1dsUFhsUVhsUllsU1psVFpsVVttVlxtV11tWF1tWV5tWV9tWl9tW2BuXGFuXWFuXmJuX2NuYGRuYWRvYWVvYmZvY2Zv" +
    "ZGdvZWhwZmlwZ2lwaGpwaGtxaWtxamxxa21xbG1ybW5ybm9ybnBzb3BzcHFzcXJzcnN0c3N0dHR1dHV1dXV1dnZ2d3d2eHh2eXh3" +
    "eXl3enp3e3t3fHt4fXx4fn14f314gH54gX94goB4g4B4hIF4hYJ4hYN4hoN4h4R4iIV4iYZ4ioZ4i4d4jIh4jYl4jol4j4p3kIt3" +
    "kYx3kox3k413lI53lY93lo93l5B2mJF2mZJ2mpN2m5N2nJR2nZV1npZ1n5Z1oJd1oZh0opl0o5p0pJp0pZtzppxzp51zqJ5zqZ5y" +
    "qp9yq6ByrKFxraJxrqJxr6NwsKRwsaVwsqZvs6ZvtKdvtahutqlut6ptuKttuattuqxsu61svK5rva9rvrBqv7BqwbFpwrJpw7No" +
    "xLRoxbVnxrVnx7ZmyLdlybhlyrlky7pkzLtjzbxizrxiz71h0L5g0r9g08Bf1MFe1cJe1sNd18Nc2MRb2cVa2sZa28dZ3MhY3slX" +
    "38pW4MtV4cxU4sxT481S5M5R5c9Q5tBP6NFO6dJN6tNM69RL7NVK7dZI7tdH79hG8dlE8tpD89pC9NtA9dw/9t09+N47+d86+uA4" +
    "++E2/eI0/eMz/eU0/eY2/ec3" },
  RdBu: { kind: "diverging", rgb:
    "BTBhBjJjBzRmCDZpCThsCjpvCzxyDD51DUB4DkN7D0V+EUeBEkmEE0uHFE2KFU+NFlGQF1STGFaVGViYGlqbHFyeHV6hHmCkH2Kn" +
    "IGSqIWasI2itJGquJWyvJ22wKG+wKXGxK3OyLHWzLXa0L3i1MHq2MXy3M324NH+5NYG5N4O6OIS7OYa8O4i9PIq+PYu/P43AQI/B" +
    "QZHCQ5PDRpTESZbFTJjGT5rHUpzIVZ7JWKDKW6LLXqTMYabNZajOaKrPa6zQbq7RcbDSdLLTd7TVerbWfbjXgLrYhLzZh77aisDb" +
    "jcLckMTdk8XelcbfmMjfmsngncrhn8vhos3ipM7jp8/kqdDkq9LlrtPmsNTms9XntdfouNjoutnpvdrqv9zrwt3rxN7sx9/tyeHt" +
    "zOLuzuPv0eXw0uXw0+bw1efw1ufx2Ojx2enx2+nx3Ory3uvy3+zy4ezz4u3z5O7z5e7z5+/06PD06vH06/H07fL17vP18PP18fT2" +
    "8/X29PX29vb29/b29/X09/Ty9/Pw+PLu+PDs+O/q+O7o+e3n+ezl+evj+erh+enf+ujd+ufb+uXZ+uTX++PW++LU++HS++DQ/N/O" +
    "/N7M/N3K/NzI/dvH/NjE/NbB+9S++9K8+9C5+s62+sy0+sqx+ceu+cWr+cOp+MGm+L+j+L2h97ue97mb97eZ9rSW9rKT9bCQ9a6O" +
    "9ayL9KqI9KiG9KaD86OA8qB+8Z5875t67ph47ZZ27JN065By6o5w6Itu54hs5oVq5YNo5IBl4n1j4Xth4Hhf33Vd3nJb3XBZ221X" +
    "2mpV2WhT2GVR12JP1mBN1F1L01pK0VdJ0FRHzlFGzU9FzExDyklCyUZBx0M/xkA+xT48wzs7wjg6wDU4vzI3vjA2vC00uyozuScy" +
    "uCQxtiEvtR8utBwtshkrsBcqrRYqqhUppxQppBMooRIonhEnmxAnmRAnlg8mkw4mkA0ljQwligskhwokhAkjgQgjfgciewYieAUh" +
    "dQQhcgMgbwIgbAEfaQAfZwAf" },
  coolwarm: { kind: "diverging", rgb:
    "OkzAO03BPE/DPlHEP1PGQFTHQVbJQljKQ1rMRVvNRl3PR1/QSGDRSWLTS2TUTGbWTWfXTmnYUGvaUWzbUm7cU3DdVXHeVnPgV3Xh" +
    "WHbiWnjjW3nkXHvlXX3mX37nYIDoYYLqY4PqZIXrZYbsZ4jtaInuaYvva43wbI7xbZDxb5HycJPzcZT0c5X0dJf1dZj2d5r2eJv3" +
    "ep34e574fKD5fqH5f6L6gKT6gqX7g6b7haj7hqn8h6r8iaz8iq39i679ja/9jrH9kLL+kbP+krT+lLX+lbf+l7j+mLn+mbr+m7v+" +
    "nLz+nb3+n77+oL/+osD+o8H+pML+psP9p8T9qMX9qsb9q8f8rMj8rsn8r8r7sMv7ssv7s8z6tM36ts75t8/5uM/4udD4u9H3vNH2" +
    "vdL2vtP1wNP1wdT0wtTzw9XyxdXyxtbxx9bwyNfvydfuytjuzNjtzdnsztnrz9nq0Nrp0dro0trn09vm1dvl1tvk19vi2Nvh2dzg" +
    "2tzf29ze3Nzd3dzb3tva39vZ4NrX4drW4tnU49nT5NjR5djQ5tfP59bN59bM6NXK6dTJ6tPH69PG7NLE7NHD7dDB7c/A7s++7868" +
    "78278My58cu48cq28sm18siz8sey88aw88Wv9MSt9MOr9MKq9cGo9cCn9b+l9r2k9ryi9rug9rqf9rmd9rec9raa97WY97OX97KV" +
    "97GU97CS966R962P9quN9qqM9qmK9qeJ9qaH9qSG9qOE9aGC9aCB9Z5/9J1+9Jt89Jp785h585Z485V28pN18pFz8ZBy8Y5w8I1v" +
    "8Itt74ls7odq7oZp7YRn7IJm7IBk639j6n1h6ntg6Xle6Hdd53Vc5nRa5nJZ5XBX5G5W42xU4mpT4WhS4GZQ32RP3mJO3WBM3F5L" +
    "21xK2lpI2VhH2FZG11RE1lJD1E9C001A0ks/0Uk+z0Y9zkQ8zUI6zD85yj04yTs3yDg1xjU0xTIzxDAywi0xwSowvyguviMtvB8s" +
    "uxoruRYquBEptg0otQgnswMm" },
  twilight: { kind: "cyclic", rgb:
    "4dji4Nni39nh3tng3dng29jf2dje2Nfd1tbc1Nbb0tXaz9TZzdLYytHXx9DWxc/Uws3Tv8zSvMrRucnQtsfPs8bOsMTNrcPMqsHL" +
    "p8DKpL7KobzJnrvIm7nImLfHlrXGk7TGkLLFjrDFi67FiazEhqvEhKnDgqfDgKXDfqPCfKHCep/CeJ3BdpvBdJrBc5jAcZbAb5TA" +
    "bpK/bZC/a46/aou+aYm+aIe+Z4W9ZoO9ZYG9ZH+8ZH28Y3u7Yni7Yna6YXS6YXK5YHC4YG24YGu3X2m2X2e2X2S1X2K0X2CzXl2y" +
    "XluxXlmwXlavXlSuXlGtXk+sXk2qXkqpXUinXUWmXUOkXUCjXT6hXDyfXDmdXDebWzSZWzKXWjCVWi2SWSuQWSmNWCeLVySIViKF" +
    "VSGCVB9/Ux18Uht4UBp1TxlyTRduTBZrShVnSRVkRxRgRRNdRBJaQhJXQBFUPhFRPRFOOxFLOhBIOBBGNxBDNhBBNBA/MxE9MhE7" +
    "MhE6MBI4LxM3LxM2MRI2MhI3MxE3NRE4NhE4NxE5ORE5OxE6PRE7PxE8QRE9QxI+RRI/RxJAShNBTBNCTxRDURREVBVFVhVGWRZH" +
    "XBZIXhdJYRhKYxhLZhlMaRpMaxpNbhtOcRxOcx1Odh5PeB9PeyBPfSFQgCNQgiRQhCVQhydQiShQiypQjSxQkC1Qki9PlDFPljJP" +
    "mDRPmjZPmzhPnTpPnzxPoT5PokBPpEJPpkRPp0ZPqUlQqktQrE1QrU9Qr1FRsFRRslZSs1hStFpTtV1Ttl9UuGFVuWRWumZXu2hX" +
    "vGtZvW1avnBbv3JcwHRdwHdfwXlgwnxiw35kw4FmxINoxYZqxYhsxotux41wx49yyJJ1yJR4yZd6yZl9ypyAyp6Dy6GFzKOJzKWM" +
    "zaiPzaqSzqyVz6+Zz7Gc0LOf0baj0rim07qp07yt1L6w1cC01sK318S72Ma+2cjB2srE28zI287L3M/N3dHQ3tLT3tPV39XX39bZ" +
    "4Nbb4Nfd4dje4djf4djh4djh" },
};
