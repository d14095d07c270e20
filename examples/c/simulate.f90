! The five lines in Fortran: each unit has some rows, and fills them where they lie.
!
!     gfortran $(polyduct config --fortran) examples/c/simulate.f90 $(polyduct config --libs) -o simulate
!     gfortran $(polyduct config --fortran) examples/c/analyse.f90 $(polyduct config --libs) -o analyse
!     polyduct run "-n 4 ./simulate | -n 3 ./analyse"
program simulate
  use polyduct
  implicit none
  type(polyduct_port) :: out
  real, pointer :: a(:, :) ! this unit's rows, in shared memory: no copy
  integer :: t
  call out%open_write('-', [4096, 4096], 'f4', 'block,*')
  do t = 0, 9
    call out%step(a)
    a = t
    call out%publish()
  end do
  call out%close()
end program
